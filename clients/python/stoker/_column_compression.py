"""How the columns of a table are compressed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from stoker._errors import InvalidRequestError
from stoker._numbers import whole_or_none

__all__ = ["CODECS", "ColumnCodec", "ColumnCodecs", "ColumnCompression", "with_codecs"]

Codec = Literal["zstd", "lz4", "byte_stream_split", "pco", "float16", "bfloat16", "jpeg"]

#: The codecs. The last three lose something.
CODECS = ("zstd", "lz4", "byte_stream_split", "pco", "float16", "bfloat16", "jpeg")
#: The metadata key that chooses the codec of a column that is written.
_CODEC_KEY = b"stoker.codec"


@dataclass(frozen=True)
class ColumnCompression:
    """How a column is compressed; see ``compression`` of :meth:`Lake.create_table`.

    Attributes:
        codec: ``"pco"`` compresses numbers the most. ``"zstd"`` compresses repeated bytes, and ``"byte_stream_split"``
            does the same with the first bytes of all numbers, then with their second bytes, and so on. ``"lz4"`` is the
            fastest. ``"float16"`` and ``"bfloat16"`` round floats, and ``"jpeg"`` makes encoded images of ``uint8``
            tensors; the largest error is measured.
        level: From -7 to 22 for ``"zstd"`` and ``"byte_stream_split"`` (default: 3), from 0 to 12 for ``"pco"``
            (default: 8), and the quality from 1 to 100 for ``"jpeg"`` (default: 90). A higher level of the lossless
            codecs compresses more, and takes longer to write.

    Example:
        >>> depth = np.cumsum(np.ones((4, 16, 16), np.float32), axis=2)
        >>> compression = {"depth": stoker.ColumnCompression("pco", level=4)}
        >>> table = lake.create_table("depths", {"depth": depth}, compression=compression)
        >>> table.describe()[0].kind
        'tensor float32[16, 16] (pco)'
        >>> batch = next(iter(lake.sql("SELECT depth FROM depths").stream(batch_size=4)))
        >>> bool((batch["depth"] == depth).all())
        True
    """

    codec: Codec
    level: int | None = None

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise InvalidRequestError(f"codec is {self.codec!r}; it must be one of {', '.join(map(repr, CODECS))}")
        whole_or_none("level", self.level, -7, 100)

    def __str__(self) -> str:
        return self.codec if self.level is None else f"{self.codec}:{self.level}"


ColumnCodec: TypeAlias = Codec | ColumnCompression | str
ColumnCodecs: TypeAlias = Mapping[str, ColumnCodec]


def with_codecs(reader: pa.RecordBatchReader, codecs: ColumnCodecs) -> pa.RecordBatchReader:
    """Returns the rows with the codec of each column in the metadata of its field. The engine compresses.

    Raises:
        InvalidRequestError: A column that does not exist, or a value that is no codec.
    """
    schema = reader.schema
    for name, codec in codecs.items():
        index = schema.get_field_index(name)
        if index < 0:
            raise InvalidRequestError(f"compression names {name!r}, which is not among the columns {schema.names}")
        if not isinstance(codec, (str, ColumnCompression)):
            raise InvalidRequestError(
                f"compression[{name!r}] is {codec!r}; it must be a codec such as 'pco', or a stoker.ColumnCompression"
            )
        field = schema.field(index)
        metadata: dict[Any, Any] = {**(field.metadata or {}), _CODEC_KEY: str(codec).encode()}
        schema = schema.set(index, field.with_metadata(metadata))

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
