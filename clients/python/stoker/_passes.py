"""Passes: the loops over a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from stoker import _native
from stoker._batch import Batch

__all__ = ["passes"]

_Value = TypeVar("_Value")


def passes(
    session: _native.Session, convert: Callable[[Iterable[Batch]], Iterable[tuple[Batch, _Value]]]
) -> Iterator[_Value]:
    """Yields the values that ``convert`` makes of the rest of the epoch; see :meth:`Stream.passes`."""
    this, at_end = session.enter(), False
    try:
        while (turn := session.turn_of(this)) is not None:
            for batch, value in convert(_batches(session, turn)):
                if session.turn != turn:
                    break  # the position was changed inside the loop
                native = batch.native
                if native.is_last:
                    session.finish(native)
                # Python handles no signal between these two lines: Ctrl-C there would lose the batch, or repeat it.
                session.got = native
                yield value
            else:
                if session.turn == turn:
                    at_end = True
                    return
    finally:
        session.leave(this, at_end)


def _batches(session: _native.Session, turn: int) -> Iterator[Batch]:
    """Yields the rest of the epoch without changing the position."""
    while (native := session.next(turn)) is not None:
        yield Batch(native)
