"""Transforms that are called with single rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from stoker._batch import Batch
from stoker._errors import BadRow, DataCorruptError, InvalidRequestError
from stoker._numbers import whole

__all__ = ["PerRow", "RowOutput", "Stack", "samples", "stacked"]

#: The maximum size of a dimension.
_SIZE_MAX = 2**31 - 1

#: What makes the values of a batch of the values of its rows.
Stack = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class RowOutput:
    """The shape and the type of the array that one row has under a key."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class PerRow:
    """A transform that gets single rows; for ``transform=`` of :meth:`Query.numpy` and the other loaders.

    The function gets each row as a dict of its columns, and returns a dict; all rows must have the same keys. The
    values of the rows are stacked: arrays and numbers of one shape become an array or tensor of shape ``(rows, …)``,
    arrays of different shapes and other values a list, in NumPy an array of objects. With ``collate_fn`` of
    :meth:`Query.torch`, that function gets the dicts instead.

    It is called where other transforms are, on ``transform_threads`` ahead of the loop, after columns are decoded. JAX
    and TensorFlow have NumPy arrays here, which become theirs afterwards.

    An exception of the function ends the loop; its note names table and row id. :class:`stoker.BadRow` ends it as a
    :class:`DataCorruptError` that names them. The row cannot be substituted: its batch was counted before. Functions of
    ``decode`` can say that a row is bad before that.

    Attributes:
        function: The function.
        seeded: Whether the function gets a second argument: a ``numpy.random.Generator`` that is seeded by the stream's
            seed, the epoch and the row's position, so that a row has the same random numbers on any number of ranks,
            with any batch size, and after any resume.
        outputs: The shape and the type of the array under each key, such as ``{"x": ((3, 8), "float32")}``. Rows that
            differ from them are an error. TensorFlow needs them, because it asks for types before the first row.

    Example:
        >>> def noisy(row, rng):
        ...     return {"x": row["image"] / 255 + rng.normal(size=(1, 8, 8)), "label": row["label"]}
        >>> query = lake.sql("SELECT image, label FROM digits")
        >>> batch = next(iter(query.numpy(batch_size=4, seed=7, transform=stoker.PerRow(noisy, seeded=True))))
        >>> batch["x"].shape, batch["label"].shape
        ((4, 1, 8, 8), (4,))
    """

    function: Callable[..., Any]
    seeded: bool = False
    outputs: Mapping[str, tuple[int | Sequence[int], Any]] | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidRequestError(f"function is {self.function!r}; it must be a function")
        _ = self.row_outputs

    @property
    def row_outputs(self) -> dict[str, RowOutput] | None:
        """The outputs, checked.

        Raises:
            InvalidRequestError: An output that is no shape and type.
        """
        if self.outputs is None:
            return None
        if not isinstance(self.outputs, Mapping):
            raise InvalidRequestError(f"outputs is {self.outputs!r}; it must be a dict of shapes and types")
        return {key: _row_output(key, output) for key, output in self.outputs.items()}

    def rows(self, values: Mapping[str, Any], batch: Batch) -> list[Any]:
        """Returns what the function makes of each row of a batch.

        Raises:
            DataCorruptError: The function refused a row.
            InvalidRequestError: It returned no dict, or other arrays than ``outputs`` says.
        """
        seeds = iter(batch.rows.row_seeds().tolist()) if self.seeded else None
        outputs = self.row_outputs
        found: list[Any] = []
        for number, row in enumerate(samples(values, batch.num_rows)):
            try:
                made = self.function(row) if seeds is None else self.function(row, np.random.default_rng(next(seeds)))
            except BadRow as bad:
                raise DataCorruptError(f"the transform refused {batch.rows.place(number)}: {bad}") from bad
            except Exception as error:
                if hasattr(error, "add_note"):
                    error.add_note(f"in the transform of step {batch.step}: {batch.rows.place(number)}")
                raise
            if not isinstance(made, Mapping):
                _refuse(batch, number, f"returned {type(made).__name__}; it must be a dict")
            if found and made.keys() != found[0].keys():
                _refuse(batch, number, f"returned the keys {list(made)}, and for other rows {list(found[0])}")
            if outputs is not None:
                made = _checked(made, outputs, batch, number)
            found.append(made)
        return found

    def batch(self, values: Mapping[str, Any], batch: Batch, stack: Stack | None = None) -> dict[str, Any]:
        """Returns what the function makes of the rows of a batch, stacked."""
        rows = self.rows(values, batch)
        if not rows:
            outputs = self.row_outputs or {}
            # Of one row, so that the types are those of other batches.
            return {key: (stack or stacked)([np.zeros(out.shape, out.dtype)])[:0] for key, out in outputs.items()}
        return {key: (stack or stacked)([row[key] for row in rows]) for key in rows[0]}


def samples(values: Mapping[str, Any], num_rows: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of a batch, one dict each."""
    return ({name: column[row] for name, column in values.items()} for row in range(num_rows))


def stacked(parts: list[Any]) -> np.ndarray[Any, Any]:
    """Returns the values of rows as one array: of numbers if they have one shape, of objects otherwise."""
    arrays = [np.asarray(part) for part in parts if isinstance(part, np.ndarray | np.generic | bool | int | float)]
    if len(arrays) == len(parts) and len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    objects = np.empty(len(parts), dtype=object)
    for row, part in enumerate(parts):
        objects[row] = part
    return objects


def _row_output(key: str, output: Any) -> RowOutput:
    try:
        sizes, kind = output
        dtype = np.dtype(kind)
    except (TypeError, ValueError):
        raise InvalidRequestError(
            f"outputs[{key!r}] is {output!r}; it must be a shape and a type of NumPy, such as ((3, 8), 'float32')"
        ) from None
    shape = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    return RowOutput(tuple(whole("size", size, 0, _SIZE_MAX) for size in shape), dtype)


def _checked(
    made: Mapping[str, Any], outputs: Mapping[str, RowOutput], batch: Batch, number: int
) -> dict[str, np.ndarray[Any, Any]]:
    if made.keys() != outputs.keys():
        _refuse(batch, number, f"returned the keys {list(made)}; outputs has {list(outputs)}")
    found = {}
    for key, output in outputs.items():
        value = made[key]
        # Numbers of Python take the type that was asked for.
        array = np.asarray(value, output.dtype) if isinstance(value, bool | int | float) else np.asarray(value)
        if array.shape != output.shape or array.dtype != output.dtype:
            said = f"{output.dtype}{list(output.shape)}"
            _refuse(batch, number, f"returned {array.dtype}{list(array.shape)} as {key}; outputs says {said}")
        found[key] = array
    return found


def _refuse(batch: Batch, number: int, what: str) -> NoReturn:
    raise InvalidRequestError(f"the function of the transform, {batch.rows.place(number)}: it {what}")
