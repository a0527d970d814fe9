"""Boxes that follow the crops, flips and rotations of their images."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, cast

import numpy as np

from stoker._errors import InvalidRequestError
from stoker._ragged import Jagged

__all__ = ["map_boxes"]

T = TypeVar("T")

#: The meanings of the four numbers of a box.
_FORMATS = ("xyxy", "xywh", "cxcywh")


def map_boxes(
    boxes: T,
    matrix: Any,
    size: tuple[int, int] | None = None,
    box_format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy",
) -> T:
    """Moves boxes from the pixels of image files to the pixels of the tensors that the files became.

    Args:
        boxes: The boxes of each row: an array or tensor of shape ``(rows, boxes, 4)``, one of PyTorch's nested tensors,
            a :class:`stoker.Jagged`, or a sequence of arrays of shape ``(boxes, 4)``.
        matrix: The batch's ``<column>_matrix`` of shape ``(rows, 2, 3)``, see ``matrix`` of
            :class:`stoker.ImageTransform`.
        size: Height and width of the tensors, at which boxes are cut off; a box outside has no area then. ``None`` cuts
            off nothing.
        box_format: ``"xyxy"`` (corners), ``"xywh"`` (corner and size) or ``"cxcywh"`` (centre and size), in pixels.

    Returns:
        The boxes, with the type and shape of ``boxes``, as float32: the smallest upright boxes around the moved
        corners. There are as many as before, so that labels stay theirs.

    Raises:
        InvalidRequestError: Shapes that do not fit, or another format.

    Example:
        >>> matrix = np.array([[[0.5, 0, -10], [0, 0.5, 0]]], dtype=np.float32)
        >>> stoker.map_boxes(np.array([[[20, 20, 60, 40]]]), matrix, size=(224, 224)).tolist()
        [[[0.0, 10.0, 20.0, 20.0]]]
    """
    if box_format not in _FORMATS:
        raise InvalidRequestError(f"box_format is {box_format!r}; it must be one of {', '.join(_FORMATS)}")
    matrices = np.asarray(matrix, dtype=np.float32)
    if matrices.ndim != 3 or matrices.shape[1:] != (2, 3):
        raise InvalidRequestError(f"matrix has shape {matrices.shape}; it must be (rows, 2, 3)")
    return cast(T, _moved_boxes(boxes, matrices, size, box_format))


def _moved_boxes(rows: Any, matrices: np.ndarray[Any, Any], size: tuple[int, int] | None, box_format: str) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(rows, torch.Tensor):
        if not rows.is_nested:
            return torch.from_numpy(_moved_rows(rows.numpy(), matrices, size, box_format))
        values, offsets = rows.values(), rows.offsets()
        moved = _moved_jagged(values.numpy(), offsets.numpy(), matrices, size, box_format)
        return torch.nested.nested_tensor_from_jagged(torch.from_numpy(moved), offsets)
    if isinstance(rows, Jagged):
        return rows._with_values(_moved_jagged(rows.values, rows.offsets, matrices, size, box_format))
    if isinstance(rows, np.ndarray) and rows.dtype != object:
        return _moved_rows(rows, matrices, size, box_format)
    if not isinstance(rows, (Sequence, np.ndarray)) or len(rows) != len(matrices):
        raise InvalidRequestError(f"boxes must be those of {len(matrices)} rows, one row for each matrix")
    moved_rows = []
    for row, row_matrix in zip(rows, matrices, strict=True):
        one = _moved_rows(np.asarray(row, dtype=np.float32).reshape(1, -1, 4), row_matrix[None], size, box_format)[0]
        moved_rows.append(torch.from_numpy(one) if torch is not None and isinstance(row, torch.Tensor) else one)
    return moved_rows


def _moved_rows(
    boxes: np.ndarray[Any, Any], matrices: np.ndarray[Any, Any], size: tuple[int, int] | None, box_format: str
) -> np.ndarray[Any, Any]:
    if boxes.ndim != 3 or boxes.shape[2] != 4 or len(boxes) != len(matrices):
        raise InvalidRequestError(f"boxes have shape {boxes.shape}; it must be ({len(matrices)}, boxes, 4)")
    return _moved(boxes, matrices[:, None], size, box_format)


def _moved_jagged(
    values: np.ndarray[Any, Any],
    offsets: np.ndarray[Any, Any],
    matrices: np.ndarray[Any, Any],
    size: tuple[int, int] | None,
    box_format: str,
) -> np.ndarray[Any, Any]:
    if values.ndim != 2 or values.shape[1] != 4 or len(offsets) != len(matrices) + 1:
        raise InvalidRequestError(
            f"boxes have {len(offsets) - 1} rows of elements of shape {values.shape[1:]}; they must have "
            f"{len(matrices)} rows of boxes of 4 numbers"
        )
    return _moved(values, np.repeat(matrices, np.diff(offsets), axis=0), size, box_format)


def _moved(
    boxes: np.ndarray[Any, Any], matrices: np.ndarray[Any, Any], size: tuple[int, int] | None, box_format: str
) -> np.ndarray[Any, Any]:
    """Moves boxes of shape (…, 4) by matrices of shape (…, 2, 3)."""
    first, second, third, fourth = np.moveaxis(boxes.astype(np.float32), -1, 0)
    if box_format == "cxcywh":
        first, second = first - third / 2, second - fourth / 2
    right, bottom = (third, fourth) if box_format == "xyxy" else (first + third, second + fourth)
    xs = np.stack([first, right, first, right])
    ys = np.stack([second, second, bottom, bottom])
    moved_xs = matrices[..., 0, 0] * xs + matrices[..., 0, 1] * ys + matrices[..., 0, 2]
    moved_ys = matrices[..., 1, 0] * xs + matrices[..., 1, 1] * ys + matrices[..., 1, 2]
    left, top, right, bottom = moved_xs.min(0), moved_ys.min(0), moved_xs.max(0), moved_ys.max(0)
    if size is not None:
        height, width = size
        left, right = left.clip(0, width), right.clip(0, width)
        top, bottom = top.clip(0, height), bottom.clip(0, height)
    if box_format == "xyxy":
        return np.stack([left, top, right, bottom], axis=-1)
    corner = (left, top) if box_format == "xywh" else ((left + right) / 2, (top + bottom) / 2)
    return np.stack([*corner, right - left, bottom - top], axis=-1)
