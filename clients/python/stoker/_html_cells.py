"""Shows values of columns as HTML: numbers, texts, images, vectors, bytes and nested values."""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np
import pyarrow as pa

from stoker._column_shapes import ColumnShape
from stoker._columns import as_elements
from stoker._html_style import NULL, text_html
from stoker._thumbnails import file_thumbnail, tensor_thumbnail

__all__ = ["cell", "is_number", "number_text", "type_name", "value_html"]

#: The width and height of a sparkline in pixels, and the maximum number of its points.
LINE_WIDTH = 120
LINE_HEIGHT = 28
NUM_POINTS = 96
#: The maximum numbers of bytes and of elements that are shown of a value.
NUM_BYTES = 8
NUM_ELEMENTS = 8


def type_name(field: pa.Field, shape: ColumnShape) -> str:
    """Returns the type of a column: ``uint8[3, 224, 224]`` for tensors, ``encoded image``, else Arrow's name."""
    if shape.kind == "encoded_image":
        return "encoded image"
    if shape.kind in ("tensor", "vector"):
        return f"{shape.element}{list(shape.shape)}"
    if shape.kind == "ragged":
        sizes = (
            ["*"] * shape.levels + list(shape.shape)
            if shape.sizes is None
            else ["*" if size is None else size for size in shape.sizes]
        )
        return f"{shape.element}[{', '.join(map(str, sizes))}]"
    return str(field.type)


def is_number(field: pa.Field) -> bool:
    """Returns whether the values of a column are numbers, which are aligned to the right."""
    kind = field.type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def cell(shape: ColumnShape, value: pa.Scalar) -> str:
    """Returns one value of a column."""
    while isinstance(value, pa.ExtensionScalar) and value.is_valid:
        value = value.value
    if not value.is_valid:
        return NULL
    if isinstance(value, pa.BinaryScalar) and not isinstance(value, pa.StringScalar):
        data = value.as_py()
        if shape.kind != "encoded_image":
            return _bytes(data)
        return file_thumbnail(data) or f"{_bytes(data)} <small>no image that can be decoded</small>"
    numbers = _numbers(value, shape)
    if numbers is None:
        is_list = isinstance(value, pa.ListScalar) and not value.values.null_count
        if is_list and shape.small_float is not None:
            return text_html(f"{shape.small_float}{list(shape.shape)}, shown if the package ml_dtypes is installed")
        return value_html(_plain(value))
    if numbers.ndim == 1:
        return _sparkline(numbers) or text_html(_array_text(numbers))
    return tensor_thumbnail(numbers) or text_html(f"{numbers.dtype}{list(numbers.shape)}: {_array_text(numbers)}")


def value_html(value: object) -> str:
    """Returns a Python value: a number with few digits, NULL for None, and all others as text."""
    if value is None:
        return NULL
    if isinstance(value, float):
        short, exact = number_text(value), repr(value)
        if short == exact or not math.isfinite(value):
            return short
        return f'<span title="{exact}">{short}</span>'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return text_html(str(value))


def number_text(value: float) -> str:
    """Returns a number with up to six significant digits."""
    if math.isnan(value):
        return "NaN"
    return f"{value:.6g}"


def _plain(value: pa.Scalar) -> object:
    """Returns the Python value of a scalar; nested values, and those that Python does not have, are texts."""
    while isinstance(value, pa.ExtensionScalar) and value.is_valid:
        value = value.value
    if not value.is_valid:
        return None
    if isinstance(value, pa.BinaryScalar) and not isinstance(value, pa.StringScalar):
        return _bytes_text(value.as_py())
    if isinstance(value, pa.ListScalar):
        elements = value.values
        shown = ", ".join(_nested(element) for element in elements[:NUM_ELEMENTS])
        more = f", … ({len(elements):,} values)" if len(elements) > NUM_ELEMENTS else ""
        return f"[{shown}{more}]"
    if isinstance(value, pa.StructScalar):
        members = (f"{member.name}: {_nested(value[index])}" for index, member in enumerate(value.type))
        return "{" + ", ".join(members) + "}"
    try:
        plain = value.as_py()
    except (ArithmeticError, ValueError):
        # Times beyond the years of Python, and nanoseconds.
        return f"{value.value} ({value.type})"
    return float(plain) if pa.types.is_floating(value.type) else plain


def _nested(value: pa.Scalar) -> str:
    plain = _plain(value)
    if plain is None:
        return "NULL"
    return number_text(plain) if isinstance(plain, float) else str(plain)


def _bytes(data: bytes) -> str:
    return f"<code>{html.escape(_bytes_text(data))}</code>"


def _bytes_text(data: bytes) -> str:
    """Returns the number of bytes, and the first ones."""
    count = f"{len(data):,} byte{'' if len(data) == 1 else 's'}"
    if not data:
        return count
    return f"{count}: {data[:NUM_BYTES].hex()}{'…' if len(data) > NUM_BYTES else ''}"


def _numbers(value: pa.Scalar, shape: ColumnShape) -> np.ndarray[Any, Any] | None:
    """Returns the numbers of a tensor, vector or list in their shape; ``None`` for other values, and if one is null."""
    if not isinstance(value, pa.ListScalar) or isinstance(value, pa.MapScalar):
        return None
    elements = value.values
    if elements.null_count or not (pa.types.is_integer(elements.type) or pa.types.is_floating(elements.type)):
        return None
    numbers: np.ndarray[Any, Any] = elements.to_numpy(zero_copy_only=False)
    if shape.small_float == "bfloat16" and numbers.dtype == np.uint16:
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    elif shape.small_float is not None:
        numbers = as_elements(numbers, shape)
        if numbers.dtype == shape.dtype:  # without ml_dtypes they stay bits, which are no numbers to show
            return None
        numbers = numbers.astype(np.float32)
    if shape.kind == "tensor" and math.prod(shape.shape) == numbers.size:
        in_order: np.ndarray[Any, Any] = shape.from_stored(numbers, 1)[0]
        return in_order
    return numbers


def _array_text(numbers: np.ndarray[Any, Any]) -> str:
    return np.array2string(numbers, threshold=NUM_ELEMENTS, edgeitems=2, precision=6, separator=", ")


def _sparkline(numbers: np.ndarray[Any, Any]) -> str | None:
    """Returns a line through the numbers of a vector; ``None`` for fewer than two finite ones."""
    values = numbers.astype(np.float64)
    finite = values[np.isfinite(values)]
    if finite.size < 2:
        return None
    low, high = float(finite.min()), float(finite.max())
    title = f"{numbers.size:,} values from {number_text(low)} to {number_text(high)}"
    if finite.size < numbers.size:
        title += f", {numbers.size - finite.size:,} not finite"
    shown = finite[np.linspace(0, finite.size - 1, min(finite.size, NUM_POINTS)).round().astype(np.int64)]
    # Halves, because the difference of two large numbers may be infinite.
    extent = high / 2 - low / 2
    shares = (shown / 2 - low / 2) / extent if extent else np.full(shown.size, 0.5)
    across = np.linspace(1, LINE_WIDTH - 1, shown.size)
    down = LINE_HEIGHT - 2 - shares * (LINE_HEIGHT - 4)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    return (
        f'<svg width="{LINE_WIDTH}" height="{LINE_HEIGHT}" viewBox="0 0 {LINE_WIDTH} {LINE_HEIGHT}" role="img">'
        f'<title>{title}</title><polyline fill="none" stroke="currentColor" stroke-width="1" points="{points}"/></svg>'
    )
