"""NumPy arrays of what is like one: tensors of PyTorch, arrays of other libraries."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

__all__ = ["SMALL_FLOATS", "is_array", "is_tensor", "scalar", "to_numpy"]

#: The floats that Arrow lacks, with the type as which their bits are stored. PyTorch and ml_dtypes have these names.
SMALL_FLOATS = {
    "bfloat16": np.uint16,
    "float8_e4m3fn": np.uint8,
    "float8_e4m3fnuz": np.uint8,
    "float8_e5m2": np.uint8,
    "float8_e5m2fnuz": np.uint8,
}


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor of PyTorch, which is not imported for this."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def is_array(value: object) -> TypeGuard[Any]:
    """Whether a value is an array or a tensor of any number of dimensions; NumPy's scalars are none."""
    if isinstance(value, np.ndarray) or is_tensor(value):
        return True
    return hasattr(value, "__array__") and hasattr(value, "ndim") and hasattr(value, "dtype") and not is_scalar(value)


def is_scalar(value: object) -> bool:
    """Whether a value is a scalar of NumPy, or a column of pandas or Polars, which is converted as a whole."""
    return isinstance(value, np.generic) or type(value).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow")


def scalar(value: Any) -> Any:
    """Returns the number of an array without dimensions; any other value as it is."""
    return value.item() if is_array(value) and value.ndim == 0 else value


def to_numpy(value: Any) -> tuple[np.ndarray[Any, Any], str | None]:
    """Returns an array, and the name of the float that its numbers are the bits of, if NumPy lacks it."""
    if is_tensor(value):
        return _from_torch(value)
    array = np.asarray(value)
    name = array.dtype.name
    return (array.view(SMALL_FLOATS[name]), name) if name in SMALL_FLOATS else (array, None)


def _from_torch(tensor: Any) -> tuple[np.ndarray[Any, Any], str | None]:
    import torch

    tensor = tensor.detach().cpu().contiguous()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in SMALL_FLOATS:
        return tensor.numpy(), None
    stored = tensor.view(torch.int16 if SMALL_FLOATS[name] is np.uint16 else torch.uint8)
    return stored.numpy().view(SMALL_FLOATS[name]), name
