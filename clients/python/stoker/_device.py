"""Copies batches of tensors to a device, one batch ahead of the training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from stoker._errors import InvalidRequestError

__all__ = ["DeviceCopier", "device_of", "with_tensors"]

_Tag = TypeVar("_Tag")


def device_of(device: Any) -> torch.device | None:
    """Returns the device of an option; ``None`` stays ``None``.

    Raises:
        InvalidRequestError: PyTorch does not know the device, or this machine does not have it.
    """
    if device is None:
        return None
    try:
        chosen = torch.device(device)
    except (RuntimeError, ValueError) as unknown:
        raise InvalidRequestError(f"device is {device!r}: {unknown}") from None
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InvalidRequestError(f"device is {device!r}; PyTorch finds {torch.cuda.device_count()} CUDA devices here")
    return chosen


def with_tensors(value: Any, change: Callable[[str, torch.Tensor], Any], path: str = "") -> Any:
    """Returns a batch with each tensor in its dicts, lists and tuples replaced by ``change(path, tensor)``.

    Nested tensors are changed by their values and offsets.
    """
    if isinstance(value, torch.Tensor):
        if not value.is_nested:
            return change(path, value)
        nested: Any = value
        values, offsets = change(f"{path}/values", nested.values()), change(f"{path}/offsets", nested.offsets())
        return torch.nested.nested_tensor_from_jagged(values, offsets) if isinstance(values, torch.Tensor) else None
    if isinstance(value, Mapping):
        return {name: with_tensors(item, change, f"{path}/{name}") for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(with_tensors(item, change, f"{path}/{at}") for at, item in enumerate(value)))
    if isinstance(value, (list, tuple)) and not (value and isinstance(value[0], (str, bytes))):
        return type(value)(with_tensors(item, change, f"{path}/{at}") for at, item in enumerate(value))
    return value


class DeviceCopier:
    """Copies tensors to one device.

    For CUDA, tensors are copied through pinned host memory, which is reused, on a CUDA stream of its own: while the
    training loop works on a batch after the first, the copy of the next one runs. This takes the device memory of two
    batches, and as much pinned memory. For other devices, tensors are copied one batch ahead, without pinned memory and
    CUDA stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._slots: tuple[_Slot, _Slot] = (_Slot(), _Slot())

    def copied(self, batches: Iterable[tuple[_Tag, Any]]) -> Iterator[tuple[_Tag, Any]]:
        """Yields each batch on the device, in order; values that are no tensors do not change.

        The first batch is not kept back until the second one is there.
        """
        ahead: tuple[_Tag, Any, torch.cuda.Event | None] | None = None
        for number, (tag, batch) in enumerate(batches):
            started = (tag, *self._start(batch, self._slots[number % 2]))
            if ahead is not None:
                yield ahead[0], self._finish(ahead[1], ahead[2])
            elif number == 0:
                yield tag, self._finish(*started[1:])
                continue
            ahead = started
        if ahead is not None:
            yield ahead[0], self._finish(ahead[1], ahead[2])

    def _start(self, batch: Any, slot: _Slot) -> tuple[Any, torch.cuda.Event | None]:
        if self._side is None:
            return with_tensors(batch, lambda _, tensor: tensor.to(self._device)), None
        slot.wait()
        with torch.cuda.stream(self._side):
            moved = with_tensors(batch, lambda path, tensor: self._staged(path, tensor, slot))
            slot.event = torch.cuda.Event()
            slot.event.record(self._side)
        return moved, slot.event

    def _staged(self, path: str, tensor: torch.Tensor, slot: _Slot) -> torch.Tensor:
        return slot.pinned(path, tensor).to(self._device, non_blocking=True)

    def _finish(self, batch: Any, event: torch.cuda.Event | None) -> Any:
        """Makes the current stream wait for the copy; the allocator must not reuse memory that this stream uses."""
        if event is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(event)
            with_tensors(batch, lambda _, tensor: tensor.record_stream(current))
        return batch


class _Slot:
    """The pinned host memory of one batch that is being copied; the batch after the next one reuses it."""

    def __init__(self) -> None:
        self.event: torch.cuda.Event | None = None
        self._memory: dict[str, torch.Tensor] = {}

    def wait(self) -> None:
        """Blocks until the last copy from this slot is done."""
        if self.event is not None:
            self.event.synchronize()

    def pinned(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Returns a pinned copy of a tensor."""
        memory = self._memory.get(name)
        if memory is None or memory.dtype != value.dtype or memory.numel() < value.numel():
            memory = torch.empty(value.numel(), dtype=value.dtype, pin_memory=True)
            self._memory[name] = memory
        staged = memory[: value.numel()].view(value.shape)
        return staged.copy_(value)
