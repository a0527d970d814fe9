"""Stoker keeps GPUs fed straight from the lake.

One SQL statement defines a training set over tables on object storage; Stoker pins it to a snapshot and streams it,
shuffled and sharded, to every rank of a training job. The engine runs in this process, or behind a server, with the
same results.

Example:
    >>> import numpy as np
    >>> import stoker
    >>> lake = stoker.connect("memory://")
    >>> images = np.arange(6 * 64, dtype=np.uint8).reshape(6, 1, 8, 8)
    >>> table = lake.create_table("digits", {"image": images, "label": [0, 1, 2, 0, 1, 2]})
    >>> query = lake.sql("SELECT image, label FROM digits WHERE label < $1", params=[2])
    >>> for batch in query.stream(batch_size=2, seed=7):
    ...     assert batch["image"].shape == (2, 1, 8, 8)
"""

import os as _os

# Lance reserves two cores for I/O, and warns on machines that have no further core. It reads this variable only once.
if (_os.cpu_count() or 1) <= 3:
    _os.environ.setdefault("LANCE_CPU_THREADS", "2")

from typing import TYPE_CHECKING as _TYPE_CHECKING

from stoker._batch import Batch
from stoker._boxes import map_boxes
from stoker._bucket import Bucket
from stoker._class_balance import ClassBalance
from stoker._column_compression import ColumnCompression
from stoker._columns import tensor_shape
from stoker._decoder import Decoder
from stoker._errors import (
    AlreadyExistsError,
    BadRow,
    CancelledError,
    DataCorruptError,
    ExpiredError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    NullsWarning,
    PermissionDeniedError,
    ResourceExhaustedError,
    StateMismatchError,
    StokerError,
    UnauthenticatedError,
    UnavailableError,
)
from stoker._image import ColorJitter, ImageTransform
from stoker._image_grid import ImageGrid
from stoker._ingest import IngestPreview, IngestProgress, IngestReport, IngestSkipped
from stoker._lake import Lake, connect
from stoker._media import AudioClip, VideoClip
from stoker._mixture import Mixture, mix
from stoker._native import __version__
from stoker._pack import Pack
from stoker._per_row import PerRow
from stoker._plan import Plan
from stoker._query import Query
from stoker._ragged import Jagged, Pad
from stoker._reports import ColumnLayout, EpochVerdict, Finding, TableSize, VersionInfo
from stoker._rows import Cursor, Substitution
from stoker._run import Run, RunEntry
from stoker._statement import Outcome, StatementProgress
from stoker._stats import Stall, StreamStats
from stoker._stream import Stream
from stoker._table import Table
from stoker._tokenizer import Tokenizer

if _TYPE_CHECKING:
    from stoker._magic import Shell as _Shell

__all__ = [
    "AlreadyExistsError",
    "AudioClip",
    "BadRow",
    "Batch",
    "Bucket",
    "CancelledError",
    "ClassBalance",
    "ColorJitter",
    "ColumnCompression",
    "ColumnLayout",
    "Cursor",
    "DataCorruptError",
    "Decoder",
    "EpochVerdict",
    "ExpiredError",
    "Finding",
    "ImageGrid",
    "ImageTransform",
    "IngestPreview",
    "IngestProgress",
    "IngestReport",
    "IngestSkipped",
    "InternalError",
    "InvalidRequestError",
    "Jagged",
    "Lake",
    "Mixture",
    "NotFoundError",
    "NullsWarning",
    "Outcome",
    "Pack",
    "Pad",
    "PerRow",
    "PermissionDeniedError",
    "Plan",
    "Query",
    "ResourceExhaustedError",
    "Run",
    "RunEntry",
    "Stall",
    "StateMismatchError",
    "StatementProgress",
    "StokerError",
    "Stream",
    "StreamStats",
    "Substitution",
    "Table",
    "TableSize",
    "Tokenizer",
    "UnauthenticatedError",
    "UnavailableError",
    "VersionInfo",
    "VideoClip",
    "__version__",
    "connect",
    "map_boxes",
    "mix",
    "tensor_shape",
]


def load_ipython_extension(ipython: "_Shell") -> None:
    """Adds the magic ``%%stoker`` to a shell of IPython; ``%load_ext stoker`` calls this."""
    from stoker._magic import Magic

    ipython.register_magic_function(Magic(ipython), "line_cell", "stoker")
