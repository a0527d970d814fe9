"""Streams as data modules of Lightning. It is imported on its first use, because Lightning is optional."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stoker._errors import InvalidRequestError

if TYPE_CHECKING:
    from lightning import LightningDataModule

    from stoker._source import StreamSource
    from stoker._torch import TorchLoader
elif "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import LightningDataModule
else:
    try:
        from lightning import LightningDataModule
    except ImportError:
        from pytorch_lightning import LightningDataModule

__all__ = ["DataModule", "ValidatedDataModule"]

#: The stages that read each source.
_SOURCES = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("predict",)}


class DataModule(LightningDataModule):
    """The data of a training with Lightning, which :meth:`Query.lightning` makes.

    Loaders are made when Lightning sets up a stage, after it has started the process group, so that each process reads
    the rows of its rank. Lightning keeps the state of the training loader in its checkpoints and loads it by itself,
    also on another number of processes. Validation, test and prediction begin at their first row each time.

    Attributes:
        loaders: The loaders of the current stage, by ``"train"``, ``"val"``, ``"test"`` and ``"predict"``.
    """

    def __init__(self, sources: Mapping[str, StreamSource | None], options: Mapping[str, Any]) -> None:
        super().__init__()
        self._sources = {name: source for name, source in sources.items() if source is not None}
        self._options = dict(options)
        self.loaders: dict[str, TorchLoader] = {}

    def setup(self, stage: str) -> None:
        """Makes the loaders of a stage that are not there."""
        for name in _SOURCES[str(getattr(stage, "value", stage))]:
            if name in self._sources and name not in self.loaders:
                self.loaders[name] = self._loader(name)

    def train_dataloader(self) -> TorchLoader:
        """Returns the loader of the training rows."""
        return self._made("train")

    def test_dataloader(self) -> TorchLoader:
        """Returns the loader of the test rows."""
        return self._made("test")

    def predict_dataloader(self) -> TorchLoader:
        """Returns the loader of the rows to predict."""
        return self._made("predict")

    def teardown(self, stage: str) -> None:
        """Drops the prefetched batches; loaders keep their position."""
        for loader in self.loaders.values():
            loader.close()

    @staticmethod
    def of(sources: Mapping[str, StreamSource | None], options: Mapping[str, Any]) -> DataModule:
        """Returns the data module for some sources, which validates if one of them is ``"val"``."""
        kind = DataModule if sources.get("val") is None else ValidatedDataModule
        return kind(sources, options)

    def _loader(self, name: str) -> TorchLoader:
        options = dict(self._options)
        if name != "train":
            # Each row once, in the order of the query, from the first one in each pass.
            options.update(evaluation=True, shuffle=False)
            for only_of_training in ("run_id", "run_log", "last_batch", "drop_last", "epoch", "weight"):
                options.pop(only_of_training, None)
        return self._sources[name].torch(**options)

    def _made(self, name: str) -> TorchLoader:
        if name not in self.loaders:
            which = (
                f"no source for {name}: give query.lightning({name}=…)"
                if name not in self._sources
                else "no loaders yet"
            )
            raise InvalidRequestError(f"the data module has {which}")
        return self.loaders[name]


class ValidatedDataModule(DataModule):
    """A data module with validation rows. Lightning validates if the method is there, whatever it returns."""

    def val_dataloader(self) -> TorchLoader:
        """Returns the loader of the validation rows."""
        return self._made("val")
