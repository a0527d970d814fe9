"""Images of a query, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from stoker._column_shapes import column_shape
from stoker._errors import InvalidRequestError
from stoker._names import quoted_column
from stoker._numbers import whole
from stoker._results import first_rows
from stoker._thumbnails import is_image_shape

if TYPE_CHECKING:
    from stoker._query import Query

__all__ = ["ImageGrid", "image_grid"]

#: The maximum number of rows and of columns of a grid.
_SIDE_MAX = 32


class ImageGrid:
    """The first images of a query. Made by :meth:`Query.image_grid`; notebooks show them in rows and columns.

    Attributes:
        images: The column of images and, if labels are shown, that of labels.
        column: The name of the column of images.
        label: The name of the column of labels; None if there are none.
        columns: The number of images in a row.
    """

    def __init__(self, images: pa.Table, column: str, label: str | None, columns: int) -> None:
        self.images = images
        self.column = column
        self.label = label
        self.columns = columns

    def __len__(self) -> int:
        return int(self.images.num_rows)

    def __repr__(self) -> str:
        label = "" if self.label is None else f", label={self.label!r}"
        return f"ImageGrid({self.column!r}{label}, images={len(self)}, columns={self.columns})"

    def _repr_html_(self) -> str:
        from stoker._html import grid_html

        return grid_html(self)


def image_grid(query: Query, column: str, rows: int, columns: int, label: str | None) -> ImageGrid:
    """Reads the first images; see :meth:`Query.image_grid`."""
    selected = [quoted_column("column", column)]
    if label is not None and label != column:
        selected.append(quoted_column("label", label))
    num_columns = whole("columns", columns, 1, _SIDE_MAX)
    limit = whole("rows", rows, 1, _SIDE_MAX) * num_columns
    result = query._around(", ".join(selected), f"LIMIT {limit}")._run()
    schema = pa.schema(result.schema)
    shape = column_shape(schema.field(0))
    if shape.kind not in ("encoded_image", "binary") and not (
        shape.kind in ("tensor", "vector") and is_image_shape(shape.shape)
    ):
        result.close()
        raise InvalidRequestError(
            f"column {column} is {schema.field(0).type}; a grid shows encoded images, and tensors of shape [C, H, W], "
            "[H, W, C] or [H, W]"
        )
    return ImageGrid(first_rows(result), column, label, num_columns)
