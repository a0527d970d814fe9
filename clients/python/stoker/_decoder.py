"""Functions of Python that decode the values of a column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker import _native
from stoker._errors import InvalidRequestError
from stoker._numbers import whole

__all__ = ["Decoder", "decoded"]

#: The maximum size of a dimension.
_SIZE_MAX = 2**31 - 1


@dataclass(frozen=True)
class Decoder:
    """A function that decodes each value of a column of binary values or text; see ``decode`` of :meth:`Query.stream`.

    The threads that decode call the function ahead of the loop, and one at a time where it holds the interpreter's
    lock: NumPy, codecs and other native code release it. A function that raises :class:`stoker.BadRow` makes its row
    bad, so that ``bad_rows`` says what happens to it. Any other exception ends the stream, and names table and row.

    Attributes:
        function: It gets the bytes of a value, or the ``str`` of a text, and returns an array of ``shape`` and
            ``dtype``. Streams that are pickled need a function that can be pickled.
        shape: The shape of the array, the same for all rows; but the first size may be ``None`` for rows of different
            lengths, which ``ragged`` of the loaders hands out.
        dtype: The type of the elements, an integer or float type of NumPy.
        seeded: Whether the function gets a second argument: an integer from 0 to 2**64 - 1 for random choices, a
            function of the stream's seed, the epoch, the row's position and the name of the column.

    Raises:
        InvalidRequestError: A value that is no function, or a shape or type that no array has.

    Example:
        >>> _ = lake.create_table("packed", {"bits": [bytes([5]), bytes([3])]}, mode="overwrite")
        >>> bits = lambda value: np.unpackbits(np.frombuffer(value, np.uint8))
        >>> decode = {"bits": stoker.Decoder(bits, shape=(8,), dtype="uint8")}
        >>> batch = next(iter(lake.sql("SELECT bits FROM packed").stream(batch_size=2, shuffle=False, decode=decode)))
        >>> batch["bits"].tolist()
        [[0, 0, 0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1, 1]]
    """

    function: Callable[..., Any]
    shape: int | tuple[int | None, ...]
    dtype: str = "float32"
    seeded: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidRequestError(f"function is {self.function!r}; it must be a function")
        _native.check_decoder("function", self._request())

    def _request(self) -> _native.DecoderRequest:
        shape = [None if size is None else whole("shape", size, 0, _SIZE_MAX) for size in self._sizes()]
        try:
            dtype = np.dtype(self.dtype)
        except TypeError:
            raise InvalidRequestError(f"dtype is {self.dtype!r}; it must be a type of NumPy") from None
        return {"decoder": self, "shape": shape, "dtype": str(dtype)}

    def _sizes(self) -> tuple[int | None, ...]:
        return tuple(self.shape) if isinstance(self.shape, (tuple, list)) else (self.shape,)


def decoded(decoder: Decoder, value: bytes | str, seed: int) -> bytes:
    """Calls the function of a decoder; the native module calls this.

    Returns:
        The bytes of the array, in row-major order.

    Raises:
        InvalidRequestError: The array has another shape or type than the decoder says.
    """
    found = decoder.function(value, seed) if decoder.seeded else decoder.function(value)
    array = np.asarray(found)
    sizes, dtype = decoder._sizes(), np.dtype(decoder.dtype)
    is_right = len(sizes) == array.ndim and all(
        size is None or size == found for size, found in zip(sizes, array.shape, strict=True)
    )
    if not is_right or array.dtype != dtype:
        said = f"[{', '.join('any' if size is None else str(size) for size in sizes)}]"
        raise InvalidRequestError(
            f"the function returned {array.dtype}{list(array.shape)}; the decoder says {dtype}{said}"
        )
    return array.tobytes()
