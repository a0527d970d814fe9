"""What there is to measure: a system on a path, with one setting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.dataset import Dataset

__all__ = ["DataPath", "Epochs", "Order", "Place", "Setting", "System", "Task"]

#: Gives the batches of an epoch, counted from zero, as a tensor of images and one of labels.
Epochs = Callable[[int], Iterator[tuple[Any, Any]]]


class Place(Enum):
    """Where the data is."""

    LOCAL = "local"
    S3 = "s3"


class Order(Enum):
    """Which rows are read, in which order."""

    SEQUENTIAL = "sequential"
    SHUFFLED = "shuffled"
    SUBSET = "subset"


@dataclass(frozen=True)
class DataPath:
    """A path that data takes, such as ``s3-shuffled``."""

    place: Place
    order: Order

    @classmethod
    def parse(cls, name: str) -> DataPath:
        """The path of this name."""
        place, _, order = name.partition("-")
        return cls(Place(place), Order(order))

    def __str__(self) -> str:
        return f"{self.place.value}-{self.order.value}"


@dataclass(frozen=True)
class Setting:
    """What a system lets its user choose; the best of its settings counts."""

    num_workers: int = 0
    #: The way to the rows, where the documentation has two that deliver them alike.
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.num_workers}, {self.variant}" if self.variant else str(self.num_workers)


@dataclass(frozen=True)
class Task:
    """A measurement, as it is handed to the process that makes it."""

    system: str
    path: str
    setting: Setting
    #: The folder with the formats of the data, one in a folder each; on S3 a bucket of the same name.
    root: str
    num_rows: int
    batch_size: int
    seed: int
    #: An empty folder for what the system wants to keep.
    scratch: str
    #: The S3-compatible server, for paths on S3.
    endpoint: str | None
    #: Longer epochs are cut here.
    epoch_secs_max: float
    #: Epochs are repeated for so long.
    measured_secs_min: float

    @classmethod
    def load(cls, text: str) -> Task:
        """The opposite of :meth:`dump`."""
        fields = json.loads(text)
        return cls(**{**fields, "setting": Setting(**fields["setting"])})

    def dump(self) -> str:
        """The task as JSON."""
        return json.dumps(asdict(self))

    @property
    def place(self) -> Place:
        """Where the data is."""
        return DataPath.parse(self.path).place

    @property
    def order(self) -> Order:
        """Which rows are read, in which order."""
        return DataPath.parse(self.path).order

    @property
    def num_workers(self) -> int:
        """Worker processes of the ``DataLoader``."""
        return self.setting.num_workers

    @property
    def dataset(self) -> Dataset:
        """The rows as flat files, always local."""
        from harness.dataset import Dataset

        return Dataset(Path(self.root) / "flat", self.num_rows)

    def folder(self, data_format: str) -> Path:
        """Where a format of the data is on disk."""
        return Path(self.root) / data_format

    def url(self, data_format: str) -> str:
        """Where a format of the data is: a path, or a URL with the scheme ``s3``."""
        if self.place is Place.LOCAL:
            return str(self.folder(data_format))
        return f"s3://{Path(self.root).name}/{data_format}"

    def http_url(self, data_format: str) -> str:
        """The URL of a format on the server itself."""
        return f"{self.endpoint}/{Path(self.root).name}/{data_format}"


@dataclass(frozen=True)
class System:
    """A line of the table: a library, used in one way.

    Attributes:
        key: The name on the command line; a peer's name, or that with its way after a dash.
        title: The name in the table.
        distribution: What ``pip`` calls the library; None if nothing is to be installed.
        modules: What is imported before the clock starts; all must be there.
        data_format: The folder of its data.
        write: Writes the rows into a folder in the system's format.
        open: Opens the data, ready to iterate.
        workers: Numbers of worker processes that it can use.
        keeps_copy: Whether it keeps what it reads from S3, on disk or in memory, and reads that in the next epoch.
        variants: Its ways for an order, where there are several.
        lacking: Why it cannot do a path, by the names of paths.
    """

    key: str
    title: str
    distribution: str | None
    modules: tuple[str, ...]
    data_format: str
    write: Callable[[Dataset, Path], None]
    open: Callable[[Task], Epochs]
    workers: tuple[int, ...] = (0,)
    keeps_copy: bool = False
    variants: Callable[[Order], tuple[str, ...]] = lambda order: ("",)
    lacking: Callable[[DataPath], str | None] = lambda path: None

    @property
    def peer(self) -> str:
        """The library's name on the command line."""
        return self.key.partition("-")[0]

    def settings(self, path: DataPath, workers: tuple[int, ...]) -> list[Setting]:
        """The settings to try."""
        numbers = [number for number in self.workers if number in workers] or [self.workers[0]]
        return [Setting(number, variant) for variant in self.variants(path.order) for number in numbers]
