"""The JAX loader. It is imported on its first use, because JAX is optional."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from stoker._batch import Batch
from stoker._converted import Transform, check_threads, converted, transformed
from stoker._errors import InvalidRequestError
from stoker._jax_processes import check_sharding, one_ahead, processes_of
from stoker._loader import StreamLoader
from stoker._loader_batch import LoaderBatch
from stoker._loader_options import check_functions, check_keys, columns_to_mask
from stoker._masked import mask_key
from stoker._per_row import PerRow
from stoker._ragged import Layouts, layouts
from stoker._stream import Stream

__all__ = ["JaxBatch", "JaxLoader", "JaxOptions", "stream_options"]


@dataclass(frozen=True, kw_only=True)
class JaxOptions:
    """The options that convert the columns of a batch; see :meth:`Query.jax`."""

    sharding: Any = None
    transform: Transform | None = None
    transform_threads: int = 0
    valid_key: str | None = None
    ragged: Layouts = "pad"
    null_masks: Sequence[str] | bool = ()


class JaxBatch(LoaderBatch):
    """A dict of JAX arrays that also has the cursor of its batch. JAX sees it as a dict."""

    _made_by = "jax"

    @property
    def valid(self) -> np.ndarray[Any, Any]:
        """A bool NumPy array of shape ``(rows,)`` over the rows of this process: False for padding."""
        return np.arange(self.num_rows) < self.num_valid


jax.tree_util.register_pytree_with_keys(
    JaxBatch,
    lambda batch: (tuple((jax.tree_util.DictKey(key), batch[key]) for key in sorted(batch)), tuple(sorted(batch))),
    lambda keys, values: JaxBatch(zip(keys, values, strict=True)),
)


class JaxLoader(StreamLoader):
    """An iterable of dicts of JAX arrays, which :meth:`Query.jax` makes.

    Native threads prefetch batches without Python's global lock, and batches for an accelerator are copied one ahead.
    Passes, breaks and epochs work as for :class:`Stream`.

    A batch is a :class:`JaxBatch`, a dict that maps each column of numbers or booleans to a ``jax.Array`` of shape
    ``(rows, *tensor_shape)``, ``(rows, size)`` or ``(rows,)``; with a sharding, rows are those of all processes. Other
    columns are the NumPy arrays that :class:`Batch` has for the rows of this process. JAX without ``jax_enable_x64``
    has no numbers of 64 bits: integers become 32 bits wide, and one that does not fit is an error; so do floats, which
    are rounded.
    """

    def __init__(self, stream: Stream, options: JaxOptions) -> None:
        super().__init__(stream)
        check_functions(transform=options.transform)
        self._options, self._num_threads = options, check_threads(options.transform_threads)
        self._layouts = layouts(stream.schema, options.ragged)
        self._masked = columns_to_mask(stream.schema, options.null_masks)
        check_keys(stream.schema, options.valid_key, self._masked, self._layouts)
        self._num_parts = 1
        if options.sharding is not None:
            self._num_parts = check_sharding(options.sharding, stream, self._layouts)

    def __iter__(self) -> Iterator[Any]:
        return self.stream.passes(self._pairs)

    def _pairs(self, batches: Iterable[Batch]) -> Iterable[tuple[Batch, Any]]:
        pairs = converted(batches, self._value, self._num_threads)
        return pairs if jax.default_backend() == "cpu" else one_ahead(pairs)

    def _value(self, batch: Batch) -> Any:
        masks = {mask_key(column): batch.is_valid(column) for column in self._masked}
        values, transform = batch.arrays(self._layouts) | masks, self._options.transform
        if self._options.valid_key is not None:
            values[self._options.valid_key] = batch.valid
        if isinstance(transform, PerRow):
            values, transform = transform.batch(values, batch), None
        found: Any = {name: self._array(name, value) for name, value in values.items()}
        found = transformed(transform, found, batch)
        return JaxBatch.of(found, batch.rows) if isinstance(found, Mapping) else found

    def _array(self, name: str, values: Any) -> Any:
        """Returns a column as an array of JAX, if JAX has its type."""
        if not isinstance(values, np.ndarray) or values.dtype.kind in "OmMSU":
            return values
        values = _narrowed(name, values)
        sharding = self._options.sharding
        if sharding is None:
            return jax.device_put(values)
        shape = (values.shape[0] * self._num_parts, *values.shape[1:])
        return jax.make_array_from_process_local_data(_of_rows(sharding, values.ndim), values, shape)


def stream_options(sharding: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a stream for JAX: batches of one size, and the rows of this process of a mesh.

    Raises:
        InvalidRequestError: The sharding is none of rows.
    """
    found = dict(options)
    if sharding is not None:
        processes_of(sharding)
    if not {"last_batch", "drop_last"} & found.keys():
        found["last_batch"] = "pad"
    if sharding is not None and not {"rank", "world_size", "mesh", "process_group"} & found.keys():
        found["mesh"] = sharding
    return found


def _of_rows(sharding: Any, num_dims: int) -> Any:
    """Returns the sharding of an array whose first dimension is divided as the rows are."""
    if isinstance(sharding, jax.sharding.NamedSharding) and len(sharding.spec) > num_dims:
        return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*sharding.spec[:num_dims]))
    return sharding


def _narrowed(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns numbers in the type that JAX has for them.

    Raises:
        InvalidRequestError: An integer does not fit the type.
    """
    dtype = jax.dtypes.canonicalize_dtype(values.dtype)
    if dtype == values.dtype:
        return values
    if dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise InvalidRequestError(
                f"column {name} has {values.dtype} numbers that {dtype} cannot hold; select the column as text or as "
                "parts, or let JAX have 64 bits with jax.config.update('jax_enable_x64', True)"
            )
    return values.astype(dtype)
