"""The systems that are measured, one module per library. Libraries are imported on use, because most may be missing."""

from __future__ import annotations

from harness.task import System
from peers import ceiling, deeplake, grain, litdata, mosaicml, pylance, stoker, webdataset

__all__ = ["SYSTEMS"]

#: All systems by their keys, in the order of the table.
SYSTEMS: dict[str, System] = {
    system.key: system
    for module in (ceiling, stoker, pylance, grain, deeplake, litdata, mosaicml, webdataset)
    for system in module.SYSTEMS
}
