"""The description of a measurement: a system on a path, with one setting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.rows import ROW_KINDS, RowKind

if TYPE_CHECKING:
    from harness.dataset import Dataset

__all__ = ["DataPath", "Epochs", "Order", "Place", "Setting", "System", "Task"]

#: A function from the number of an epoch, zero-based, to its batches. Each is a pair: the rows' tensors stacked to one,
#: and a tensor of their labels.
Epochs = Callable[[int], Iterator[tuple[Any, Any]]]


class Place(Enum):
    """The location of the data."""

    LOCAL = "local"
    S3 = "s3"


class Order(Enum):
    """The rows that are read, and their order."""

    SEQUENTIAL = "sequential"
    SHUFFLED = "shuffled"
    SUBSET = "subset"


@dataclass(frozen=True)
class DataPath:
    """A location and an order, such as ``s3-shuffled``."""

    place: Place
    order: Order

    @classmethod
    def parse(cls, name: str) -> DataPath:
        """Returns the path with this name."""
        place, _, order = name.partition("-")
        return cls(Place(place), Order(order))

    def __str__(self) -> str:
        return f"{self.place.value}-{self.order.value}"


@dataclass(frozen=True)
class Setting:
    """A choice that a system leaves to its user; the best setting of a system counts."""

    num_workers: int = 0
    #: The way to read the rows, where the documentation has two ways that deliver the same rows.
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.num_workers}, {self.variant}" if self.variant else str(self.num_workers)


@dataclass(frozen=True)
class Task:
    """A measurement, as it is passed to the process that makes it."""

    system: str
    path: str
    setting: Setting
    #: The folder with a subfolder for each format of the data; on S3 it is the bucket with the same name.
    root: str
    kind: RowKind
    num_rows: int
    batch_size: int
    seed: int
    #: An empty folder for the files that the system keeps.
    scratch: str
    #: The URL of the S3-compatible server, for paths on S3.
    endpoint: str | None
    #: An epoch is cut after so many seconds.
    epoch_secs_max: float
    #: Epochs are repeated until so many seconds have passed.
    measured_secs_min: float

    @classmethod
    def load(cls, text: str) -> Task:
        """Returns the task that :meth:`dump` has written as JSON."""
        fields = json.loads(text)
        return cls(**{**fields, "setting": Setting(**fields["setting"]), "kind": ROW_KINDS[fields["kind"]]})

    def dump(self) -> str:
        """Returns the task as JSON, with the name of its kind of rows."""
        return json.dumps({**asdict(self), "kind": self.kind.name})

    @property
    def place(self) -> Place:
        """The location of the data."""
        return DataPath.parse(self.path).place

    @property
    def order(self) -> Order:
        """The rows that are read, and their order."""
        return DataPath.parse(self.path).order

    @property
    def num_workers(self) -> int:
        """The number of worker processes of the ``DataLoader``."""
        return self.setting.num_workers

    @property
    def dataset(self) -> Dataset:
        """The rows as flat files, which are always local."""
        from harness.dataset import Dataset

        return Dataset(Path(self.root) / "flat", self.kind, self.num_rows)

    def folder(self, data_format: str) -> Path:
        """Returns the folder with a format of the data on disk."""
        return Path(self.root) / data_format

    def url(self, data_format: str) -> str:
        """Returns the location of a format of the data: a path, or a URL with the scheme ``s3``."""
        if self.place is Place.LOCAL:
            return str(self.folder(data_format))
        return f"s3://{Path(self.root).name}/{data_format}"

    def http_url(self, data_format: str) -> str:
        """Returns the HTTP URL of a format of the data on the S3-compatible server."""
        return f"{self.endpoint}/{Path(self.root).name}/{data_format}"


@dataclass(frozen=True)
class System:
    """A library that is used in one way: a line of the table.

    Attributes:
        key: The name on the command line: the library's name, or this name and its way after a hyphen.
        title: The name in the table.
        distribution: The library's name for ``pip``, or None if nothing needs to be installed.
        modules: The modules that are imported before the clock starts, and that must be installed.
        data_format: The name of the folder with the system's data.
        write: A function that writes the rows into a folder in the system's format.
        open: A function that opens the data, and returns the function that iterates over an epoch.
        workers: The numbers of worker processes that the system can use.
        keeps_copy: Whether the system keeps what it reads from S3, on disk or in memory, and reads it in later epochs.
        variants: A function that returns the ways to read the rows in an order; one empty name if there is only one.
        lacking: A function that returns why the system cannot read a path, or None if it can.
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
        """The library's name on the command line, which selects all of its ways."""
        return self.key.partition("-")[0]

    def settings(self, path: DataPath, workers: tuple[int, ...]) -> list[Setting]:
        """Returns the settings to try on a path, with those of the numbers of workers that the system can use."""
        numbers = [number for number in self.workers if number in workers] or [self.workers[0]]
        return [Setting(number, variant) for variant in self.variants(path.order) for number in numbers]
