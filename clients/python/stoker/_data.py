"""Converts Python data to Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from stoker._array_columns import tensor_column
from stoker._arrays import SMALL_FLOATS, is_array, to_numpy
from stoker._column_compression import ColumnCodecs, with_codecs
from stoker._datasets import dataset_reader, is_dataset
from stoker._errors import InvalidRequestError
from stoker._masked import with_masks
from stoker._pictures import is_picture
from stoker._row_batches import known_names, row_batches
from stoker._row_values import ENCODED_IMAGE_METADATA, column_of

__all__ = ["ENCODED_IMAGE_METADATA", "PAGE_BYTES_MAX", "SMALL_FLOATS", "ArrowSource", "arrow_stream", "named_column"]

#: The largest value of the option ``page_bytes``.
PAGE_BYTES_MAX = 1 << 30

#: The key of field metadata that names the column with the indexes of a column of videos.
_VIDEO_INDEX_KEY = b"stoker.video_index"


class ArrowSource:
    """Rows on their way into a table, as a stream of Arrow.

    Attributes:
        is_repeatable: Whether the stream may be asked for more than once.
        has_features: Whether the metadata of the schema has features of Hugging Face's ``datasets``, by which the
            engine converts the columns.
        failures: What the rows raised when they were read: Arrow's readers keep only the text.
    """

    def __init__(
        self, open_stream: Callable[[list[BaseException]], Any], *, is_repeatable: bool, has_features: bool
    ) -> None:
        self.failures: list[BaseException] = []
        self._open_stream = open_stream
        self._opened: Any = open_stream(self.failures)
        self.is_repeatable = is_repeatable
        self.has_features = has_features

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        # The first stream was opened with this object, which found what can be wrong with the data.
        opened, self._opened = self._opened, None
        if opened is None:
            self.failures.clear()
            opened = self._open_stream(self.failures)
        return opened.__arrow_c_stream__(requested_schema)


def arrow_stream(
    data: Any,
    encoded_images: Sequence[str] = (),
    null_masks: Sequence[str] = (),
    *,
    videos: Sequence[str] = (),
    pixels: Sequence[str] = (),
    lenient_masks: bool = False,
    codecs: ColumnCodecs | None = None,
    hints: pa.Schema | None = None,
) -> ArrowSource:
    """Returns an object with ``__arrow_c_stream__`` for what has rows and columns.

    Args:
        data: A mapping of column names to arrays, a pandas DataFrame (without its index), anything that exports an
            Arrow stream, a list or an iterator of rows or of batches, or a dataset of Hugging Face's ``datasets``.
        encoded_images: Binary columns to mark as JPEG, PNG or WebP files. Of a struct column, the member ``bytes`` is
            written.
        null_masks: Columns of tensors or vectors whose null rows are written as zeros, with a mask beside them.
        videos: Binary columns of videos that get indexes. Of a struct column, the member ``bytes`` is written.
        pixels: Columns of ``encoded_images`` that may be tensors instead, of which the engine makes files.
        lenient_masks: Whether columns of ``null_masks`` may be missing, or have their masks already.
        codecs: The codec of each column that is compressed.
        hints: The types that columns of Python values get.

    Raises:
        InvalidRequestError: The value is none of these, or columns differ in length.
    """
    _check_names("encoded_images", encoded_images)
    _check_names("videos", videos)
    if codecs is not None and not isinstance(codecs, Mapping):
        raise InvalidRequestError(f"compression is {codecs!r}; it must be a dict of columns and codecs")
    has_features = is_dataset(data)

    def open_stream(failures: list[BaseException]) -> Any:
        try:
            stream = _stream(data, hints, failures)
        except (ValueError, OverflowError, pa.ArrowException) as failed:
            if isinstance(failed, InvalidRequestError):
                raise
            raise InvalidRequestError(f"cannot write this data: {failed}") from failed
        if null_masks:
            stream = with_masks(pa.RecordBatchReader.from_stream(stream), null_masks, lenient=lenient_masks)
        # Features say themselves which columns have files.
        if (encoded_images or videos) and not has_features:
            stream = _with_marks(pa.RecordBatchReader.from_stream(stream), encoded_images, videos, pixels)
        return with_codecs(pa.RecordBatchReader.from_stream(stream), codecs) if codecs else stream

    return ArrowSource(open_stream, is_repeatable=_is_repeatable(data), has_features=has_features)


def _check_names(option: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise InvalidRequestError(f"{option} is {names!r}; it must be a list of names of columns")


def _is_repeatable(data: Any) -> bool:
    """Whether data can be read more than once, with the same rows."""
    if isinstance(data, Mapping | pa.Table | pa.RecordBatch):
        return True
    if isinstance(data, list | tuple):
        return all(not isinstance(item, Iterator | pa.RecordBatchReader) for item in data)
    library = type(data).__module__.partition(".")[0]
    return library in ("pandas", "polars") or (is_dataset(data) and hasattr(data, "__getitem__"))


def _stream(data: Any, hints: pa.Schema | None, failures: list[BaseException]) -> Any:
    if is_dataset(data):
        return dataset_reader(data, failures)
    if isinstance(data, Mapping):
        return _table(data, hints)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return _frame(data, hints)
    if hasattr(data, "__arrow_c_stream__"):
        return data
    if hasattr(data, "__arrow_c_array__") and not isinstance(data, pa.Array):
        return pa.Table.from_batches([pa.record_batch(data)])
    if isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data):
        names = known_names(data, () if hints is None else hints.names)
        return _table({name: [row.get(name) for row in data] for name in names}, hints)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray) and not is_array(data):
        return row_batches(iter(data), hints, failures)
    raise InvalidRequestError(
        f"cannot write a {type(data).__qualname__}; use a dict of arrays, a list or an iterator of rows (dicts) or of "
        "record batches, a pandas DataFrame, or an Arrow table or reader"
    )


def _frame(frame: Any, hints: pa.Schema | None) -> pa.Table:
    """Returns the rows of a pandas DataFrame. Arrays and images in its columns become tensors and files."""
    objects = [name for name in frame.columns if frame[name].dtype == object and _has_arrays(frame[name])]
    if not objects:
        return pa.Table.from_pandas(frame, preserve_index=False)
    others = [name for name in frame.columns if name not in objects]
    plain = pa.Table.from_pandas(frame[others], preserve_index=False)
    pairs = {name: named_column(str(name), list(frame[name]), hints) for name in objects}
    for name in others:
        pairs[name] = (plain.schema.field(str(name)), plain.column(str(name)))
    fields = [pairs[name][0] for name in frame.columns]
    return pa.Table.from_arrays([pairs[name][1] for name in frame.columns], schema=pa.schema(fields))


def _has_arrays(values: Any) -> bool:
    first = next((value for value in values if value is not None), None)
    return is_picture(first) or (is_array(first) and first.ndim > 0)


def _with_marks(
    reader: pa.RecordBatchReader, encoded_images: Sequence[str], videos: Sequence[str], pixels: Sequence[str]
) -> pa.RecordBatchReader:
    encoded_images = [name for name in encoded_images if name not in pixels or not _is_tensor(reader.schema, name)]
    reader = _with_files(reader, [*encoded_images, *videos])
    return reader.cast(_writable_schema(reader.schema, encoded_images, videos))


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
    return pa.schema([_marked(field, marks.get(field.name)) for field in schema])


def _marked(field: pa.Field, mark: Mapping[bytes, bytes] | None) -> pa.Field:
    return (
        field.with_type(pa.large_binary()).with_metadata({**(field.metadata or {}), **mark})
        if mark is not None
        else field
    )


def _table(columns: Mapping[str, Any], hints: pa.Schema | None) -> pa.Table:
    if not columns:
        raise InvalidRequestError("there are no columns to write")
    pairs = [named_column(name, values, hints) for name, values in columns.items()]
    lengths = {field.name: len(array) for field, array in pairs}
    if len(set(lengths.values())) > 1:
        raise InvalidRequestError(f"columns differ in length: {lengths}")
    return pa.Table.from_arrays([array for _, array in pairs], schema=pa.schema([field for field, _ in pairs]))


def named_column(name: str, values: Any, hints: pa.Schema | None = None) -> tuple[pa.Field, pa.Array | pa.ChunkedArray]:
    """Returns a field and an array: n-dimensional arrays become tensors, two-dimensional arrays of floats vectors."""
    if not isinstance(name, str):
        raise InvalidRequestError(f"the name of a column is {name!r}; it must be text")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.field(name, values.type, nullable=values.null_count > 0), values
    if is_array(values):
        array, small_float = to_numpy(values)
        if array.ndim != 1:
            return tensor_column(name, array, small_float)
        metadata = {b"stoker.dtype": small_float.encode()} if small_float else None
        return _flat_column(name, array, metadata)
    if isinstance(values, list | tuple):
        return _listed_column(name, values, hints)
    return _flat_column(name, values, None)


def _listed_column(name: str, values: Sequence[Any], hints: pa.Schema | None) -> tuple[pa.Field, Any]:
    """Returns the column of Python values."""
    hint = None
    if hints is not None and hints.get_field_index(name) >= 0:
        hint = hints.field(name)
    column = column_of(name, values, hint)
    array = column.array(values, 0)
    return column.field.with_nullable(array.null_count > 0), array


def _flat_column(name: str, values: Any, metadata: dict[bytes, bytes] | None) -> tuple[pa.Field, Any]:
    try:
        array = pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failed:
        raise InvalidRequestError(f"column {name}: {failed}") from failed
    if pa.types.is_binary(array.type):
        array = array.cast(pa.large_binary())
    return pa.field(name, array.type, nullable=array.null_count > 0, metadata=metadata), array
