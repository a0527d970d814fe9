"""Converts Python data to Arrow record batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stoker._column_compression import ColumnCodecs, with_codecs
from stoker._errors import InvalidRequestError
from stoker._masked import with_masks

__all__ = ["ENCODED_IMAGE_METADATA", "PAGE_BYTES_MAX", "SMALL_FLOATS", "arrow_stream"]

#: The largest value of the option ``page_bytes``.
PAGE_BYTES_MAX = 1 << 30

#: The floats that Arrow lacks, with the type as which their bits are stored. PyTorch and ml_dtypes have these names.
SMALL_FLOATS = {
    "bfloat16": np.uint16,
    "float8_e4m3fn": np.uint8,
    "float8_e4m3fnuz": np.uint8,
    "float8_e5m2": np.uint8,
    "float8_e5m2fnuz": np.uint8,
}
#: Field metadata of columns with JPEG, PNG or WebP files.
ENCODED_IMAGE_METADATA = {b"stoker.kind": b"encoded_image"}
#: The key of field metadata that names the column with the indexes of a column of videos.
_VIDEO_INDEX_KEY = b"stoker.video_index"


def arrow_stream(
    data: Any,
    encoded_images: Sequence[str] = (),
    null_masks: Sequence[str] = (),
    *,
    videos: Sequence[str] = (),
    pixels: Sequence[str] = (),
    lenient_masks: bool = False,
    codecs: ColumnCodecs | None = None,
) -> Any:
    """Returns an object with ``__arrow_c_stream__`` for a table-like value.

    Args:
        data: A mapping of column names to arrays, a pandas DataFrame (without its index), or anything that exports an
            Arrow stream: a ``pyarrow.Table``, ``RecordBatchReader``, a polars DataFrame, ….
        encoded_images: Binary columns to mark as JPEG, PNG or WebP files. Of a struct column, the member ``bytes`` is
            written.
        null_masks: Columns of tensors or vectors whose null rows are written as zeros, with a mask beside them.
        videos: Binary columns of videos that get indexes. Of a struct column, the member ``bytes`` is written.
        pixels: Columns of ``encoded_images`` that may be tensors instead, of which the engine makes files.
        lenient_masks: Whether columns of ``null_masks`` may be missing, or have their masks already.
        codecs: The codec of each column that is compressed.

    Raises:
        InvalidRequestError: The value is none of these, or columns differ in length.
    """
    try:
        stream = _stream(data)
    except (ValueError, OverflowError, pa.ArrowException) as failed:
        if isinstance(failed, InvalidRequestError):
            raise
        raise InvalidRequestError(f"cannot write this data: {failed}") from failed
    if isinstance(encoded_images, str):
        raise InvalidRequestError(f"encoded_images is {encoded_images!r}; it must be a list of names of columns")
    if isinstance(videos, str):
        raise InvalidRequestError(f"videos is {videos!r}; it must be a list of names of columns")
    if null_masks:
        stream = with_masks(pa.RecordBatchReader.from_stream(stream), null_masks, lenient=lenient_masks)
    if encoded_images or videos or _has_views(stream):
        reader = pa.RecordBatchReader.from_stream(stream)
        encoded_images = [name for name in encoded_images if name not in pixels or not _is_tensor(reader.schema, name)]
        reader = _with_files(reader, [*encoded_images, *videos])
        stream = reader.cast(_writable_schema(reader.schema, encoded_images, videos))
    if codecs is not None and not isinstance(codecs, Mapping):
        raise InvalidRequestError(f"compression is {codecs!r}; it must be a dict of columns and codecs")
    return with_codecs(pa.RecordBatchReader.from_stream(stream), codecs) if codecs else stream


def _stream(data: Any) -> Any:
    if isinstance(data, Mapping):
        return _table(data)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return data
    raise InvalidRequestError(
        f"cannot write a {type(data).__qualname__}; "
        "use a dict of arrays, a pandas DataFrame, or an Arrow table or reader"
    )


def _with_files(reader: pa.RecordBatchReader, columns: Sequence[str]) -> pa.RecordBatchReader:
    """Replaces struct columns by their member ``bytes``: Hugging Face stores images as structs of bytes and path."""
    schema = reader.schema
    structs = [field for field in schema if field.name in columns and _is_file(field.type)]
    if not structs:
        return reader
    for field in structs:
        values = field.type.field("bytes")
        index = schema.get_field_index(field.name)
        schema = schema.set(index, pa.field(field.name, values.type, metadata=field.metadata))

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            arrays = {name: batch.column(name) for name in schema.names}
            for field in structs:
                # `flatten` makes the members of a null struct null; `field` would not.
                arrays[field.name] = arrays[field.name].flatten()[field.type.get_field_index("bytes")]
            yield pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _is_file(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0)


def _is_tensor(schema: pa.Schema, name: str) -> bool:
    if name not in schema.names:
        return False
    kind = schema.field(name).type
    return bool(pa.types.is_fixed_size_list(kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind))


def _has_views(stream: Any) -> bool:
    """Whether the stream may have view types, which Lance cannot store; true if the stream has no schema attribute."""
    schema = getattr(stream, "schema", None)
    if not isinstance(schema, pa.Schema):
        return True
    return any(pa.types.is_string_view(field.type) or pa.types.is_binary_view(field.type) for field in schema)


def _writable_schema(schema: pa.Schema, encoded_images: Sequence[str], videos: Sequence[str]) -> pa.Schema:
    for option, names in {"encoded_images": encoded_images, "videos": videos}.items():
        missing = [name for name in names if name not in schema.names]
        if missing:
            raise InvalidRequestError(f"{option} names {missing}, which are not among the columns {schema.names}")
    both = [name for name in videos if name in encoded_images]
    if both:
        raise InvalidRequestError(f"videos and encoded_images both name {both}; name a column once")
    marks = {name: ENCODED_IMAGE_METADATA for name in encoded_images}
    marks |= {name: {_VIDEO_INDEX_KEY: f"{name}_index".encode()} for name in videos}
    return pa.schema([_writable_field(field, marks.get(field.name)) for field in schema])


def _writable_field(field: pa.Field, mark: Mapping[bytes, bytes] | None) -> pa.Field:
    if mark:
        return field.with_type(pa.large_binary()).with_metadata({**(field.metadata or {}), **mark})
    if pa.types.is_string_view(field.type):
        return field.with_type(pa.large_string())
    if pa.types.is_binary_view(field.type):
        return field.with_type(pa.large_binary())
    return field


def _table(columns: Mapping[str, Any]) -> pa.Table:
    if not columns:
        raise InvalidRequestError("there are no columns to write")
    pairs = [_column(name, values) for name, values in columns.items()]
    lengths = {field.name: len(array) for field, array in pairs}
    if len(set(lengths.values())) > 1:
        raise InvalidRequestError(f"columns differ in length: {lengths}")
    return pa.Table.from_arrays([array for _, array in pairs], schema=pa.schema([field for field, _ in pairs]))


def _column(name: str, values: Any) -> tuple[pa.Field, pa.Array | pa.ChunkedArray]:
    """Returns a field and an array: n-dimensional arrays become tensors, two-dimensional arrays of floats vectors."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.field(name, values.type, nullable=values.null_count > 0), values
    metadata: dict[bytes, bytes] = {}
    if type(values).__module__.partition(".")[0] == "torch":
        values, metadata = _from_torch(values)
    if isinstance(values, np.ndarray) and values.dtype.name in SMALL_FLOATS:
        metadata = {b"stoker.dtype": values.dtype.name.encode()}
        values = values.view(SMALL_FLOATS[values.dtype.name])
    if not isinstance(values, np.ndarray) or values.ndim == 1:
        return _flat_column(name, values, metadata)
    return _tensor_column(name, values, metadata)


def _from_torch(tensor: Any) -> tuple[np.ndarray[Any, Any], dict[bytes, bytes]]:
    import torch

    tensor = tensor.detach().cpu().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in SMALL_FLOATS:
        return tensor.numpy(), {}
    stored = tensor.view(torch.int16 if SMALL_FLOATS[name] is np.uint16 else torch.uint8)
    return stored.numpy().view(SMALL_FLOATS[name]), {b"stoker.dtype": name.encode()}


def _flat_column(name: str, values: Any, metadata: dict[bytes, bytes]) -> tuple[pa.Field, pa.Array]:
    try:
        array = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as failed:
        raise InvalidRequestError(f"column {name}: {failed}") from failed
    if pa.types.is_binary(array.type):
        array = array.cast(pa.large_binary())
    return pa.field(name, array.type, nullable=array.null_count > 0, metadata=metadata or None), array


def _tensor_column(name: str, values: np.ndarray[Any, Any], metadata: dict[bytes, bytes]) -> tuple[pa.Field, pa.Array]:
    if values.ndim == 0:
        raise InvalidRequestError(f"column {name} is a single value; it needs one value per row")
    if values.dtype.kind not in "biuf":
        raise InvalidRequestError(
            f"column {name} has {values.ndim} dimensions of {values.dtype}; tensors have integers, floats or booleans"
        )
    shape = values.shape[1:]
    size = int(np.prod(shape))
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    element = pa.field("item", flat.type, nullable=False)
    array = pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(element, size))
    if len(shape) > 1 or values.dtype.kind != "f" or metadata:
        metadata = {
            **metadata,
            b"ARROW:extension:name": b"arrow.fixed_shape_tensor",
            b"ARROW:extension:metadata": json.dumps({"shape": list(shape)}).encode(),
        }
    return pa.field(name, array.type, nullable=False, metadata=metadata or None), array
