"""Writes null rows of tensors as zeros with a mask beside them, so that their column stays dense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from stoker._columns import bits, numbers
from stoker._errors import InvalidRequestError

__all__ = ["MASK_KEY", "mask_key", "masked_columns", "with_masks"]

#: The metadata key of a column that names the column with its mask.
MASK_KEY = b"stoker.mask"


def mask_key(column: str) -> str:
    """Returns the name of the mask of a column: of the column of a table, and of the key of a batch."""
    return f"{column}_valid"


def masked_columns(schema: pa.Schema) -> list[str]:
    """Returns the columns of a table that were written with a mask."""
    return [field.name for field in schema if MASK_KEY in (field.metadata or {})]


def with_masks(reader: pa.RecordBatchReader, columns: Sequence[str], *, lenient: bool = False) -> pa.RecordBatchReader:
    """Returns the rows with zeros in place of the null rows of some columns, and a column with the mask of each.

    ``lenient`` leaves out columns that are not there, and those whose mask is there.

    Raises:
        InvalidRequestError: A column does not exist, holds no fixed-size lists, or its mask would be a second column of
            a name.
    """
    if isinstance(columns, str):
        raise InvalidRequestError(f"null_masks is {columns!r}; it must be a list of names of columns")
    fields = list(reader.schema)
    names = reader.schema.names
    if lenient:
        columns = [name for name in columns if name in names and mask_key(name) not in names]
    for name in columns:
        if name not in names:
            raise InvalidRequestError(f"null_masks names {name!r}, which is not among the columns {names}")
        field = reader.schema.field(name)
        if not _is_of_numbers(_storage_type(field.type)):
            raise InvalidRequestError(f"null_masks names {name!r}, which holds {field.type}, no tensors and no vectors")
        if mask_key(name) in names:
            raise InvalidRequestError(f"null_masks names {name!r}, but there is a column {mask_key(name)!r} already")
        metadata = {**(field.metadata or {}), MASK_KEY: mask_key(name).encode()}
        fields[names.index(name)] = pa.field(name, field.type, nullable=False, metadata=metadata)
        fields.append(pa.field(mask_key(name), pa.bool_(), nullable=False))
    schema = pa.schema(fields, metadata=reader.schema.metadata)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            arrays = dict(zip(names, batch.columns, strict=True))
            masks = []
            for name in columns:
                arrays[name], mask = _split(arrays[name])
                masks.append(mask)
            yield pa.RecordBatch.from_arrays([*arrays.values(), *masks], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _storage_type(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.ExtensionType | pa.BaseExtensionType) else kind


def _is_of_numbers(kind: pa.DataType) -> bool:
    types = pa.types
    if not types.is_fixed_size_list(kind):
        return False
    element = kind.value_type
    return bool(types.is_integer(element) or types.is_floating(element) or types.is_boolean(element))


def _split(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the rows with zeros in place of nulls, and which rows are not null."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    if storage.null_count == 0:
        return array, pa.array(np.ones(len(array), dtype=bool))
    valid = bits(storage.buffers()[0], storage)
    size = storage.type.list_size
    values = storage.values.slice(storage.offset * size, len(storage) * size)
    if pa.types.is_boolean(values.type):
        known = bits(values.buffers()[1], values)
    else:
        known = numbers(values, np.dtype(values.type.to_pandas_dtype()))
    filled = known.reshape(len(array), size).copy()
    filled[~valid] = 0
    # A null among the numbers of a row that is not null stays one, which the writer refuses.
    nulls = values.is_null().to_numpy(zero_copy_only=False).reshape(len(array), size) & valid[:, None]
    flat = pa.array(filled.reshape(-1), values.type, mask=nulls.reshape(-1) if nulls.any() else None)
    found = pa.FixedSizeListArray.from_arrays(flat, type=storage.type)
    return array.type.wrap_array(found) if isinstance(array, pa.ExtensionArray) else found, pa.array(valid)
