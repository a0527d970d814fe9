"""Queries: results, plans and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from stoker import _distributed, _native
from stoker._errors import InvalidRequestError
from stoker._numbers import whole, whole_or_none
from stoker._stream import SliceConfig, Stream

if TYPE_CHECKING:
    import pandas
    import polars

    from stoker._lake import Lake
    from stoker._torch import TorchLoader

__all__ = ["Query"]

Shuffle = Literal["block", "full", False]
LastBatch = Literal["pad", "drop", "uneven"]

#: The most rows of a global batch, the most ranks, and the most lanes.
_BATCH_MAX = 2**32
_RANKS_MAX = 2**32 - 1
_LANES_MAX = 2**16


class Query:
    """A ``SELECT`` over a lake: a table of results, or the definition of a training set.

    Made by :meth:`Lake.sql`. Nothing is read before a result is asked for. Tables without ``AT`` are read at their
    newest version when a result or a stream is asked for; a stream keeps that version from then on.

    Example:
        >>> query = lake.sql("SELECT label, count(*) AS n FROM digits GROUP BY label ORDER BY label LIMIT 2")
        >>> query.to_arrow().to_pylist()
        [{'label': 0, 'n': 2}, {'label': 1, 'n': 2}]
    """

    def __init__(self, lake: Lake, sql: str, params: Sequence[Any]) -> None:
        self._lake = lake
        self._sql = sql
        self._params = list(params)

    @property
    def sql(self) -> str:
        """The text of the query."""
        return self._sql

    @property
    def params(self) -> list[Any]:
        """The values of ``$1``, ``$2``, …."""
        return list(self._params)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result.

        Raises:
            InvalidRequestError: Malformed SQL, an unknown column, a missing parameter.
            NotFoundError: A table, version or tag does not exist.
        """
        return pa.schema(self._run().schema)

    def explain(self) -> str:
        """Returns the logical and the physical plan as text."""
        return self._lake._native.explain(self._sql, self._params)

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the result as a reader, which runs the query as it is read.

        Raises:
            StokerError: Any kind, while planning here, and while reading from the reader.
        """
        result = self._run()
        return pa.RecordBatchReader.from_batches(pa.schema(result.schema), _batches(result))

    def to_arrow(self) -> pa.Table:
        """Returns the result as an Arrow table, without copying.

        Raises:
            StokerError: Any kind, while planning or running.
        """
        result = self._run()
        return pa.Table.from_batches(list(_batches(result)), schema=pa.schema(result.schema))

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the result as a pandas DataFrame; each tensor is a NumPy array of its shape.

        Raises:
            ImportError: pandas is not installed.
            StokerError: Any kind, while planning or running.
        """
        table = self.to_arrow()
        tensors = {
            field.name: list(table.column(field.name).combine_chunks().to_numpy_ndarray())
            for field in table.schema
            if isinstance(field.type, pa.FixedShapeTensorType) and table.num_rows and not table[field.name].null_count
        }
        frame = table.drop_columns(list(tensors)).to_pandas()
        for name, values in tensors.items():
            frame[name] = values
        return frame[table.column_names]

    def to_polars(self) -> polars.DataFrame:
        """Returns the result as a polars DataFrame.

        Raises:
            ImportError: polars is not installed.
            StokerError: Any kind, while planning or running.
        """
        import polars

        return polars.DataFrame(polars.from_arrow(self.to_arrow()))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def stream(
        self,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle: Shuffle = "block",
        last_batch: LastBatch | None = None,
        drop_last: bool | None = None,
        memory_budget_bytes: int | None = None,
        shuffle_window_bytes: int | None = None,
        block_bytes: int | None = None,
        num_lanes: int | None = None,
    ) -> Stream:
        """Pins the rows of this query and returns this rank's batches of them.

        Every row is delivered exactly once per epoch over all ranks, for any numbers of rows, ranks and batch sizes.
        The order depends on rows, seed, epoch and the shuffle options only: with the same global batch size, a global
        batch has the same rows on any number of ranks.

        When ``torch.distributed`` is initialised and neither ``rank`` nor ``world_size`` is given, this is a collective
        call: all ranks must make it, rank 0 plans, and all use its snapshots.

        Args:
            batch_size: Rows per rank and batch.
            global_batch_size: Rows of all ranks per batch, instead of ``batch_size``; shares differ by at most one row.
            seed: Chooses the order; from 0 to 2**64 - 1.
            epoch: The epoch to begin with, from zero.
            rank: This rank. With ``world_size``, defaults to ``torch.distributed``, then to the environment variables
                ``RANK`` and ``WORLD_SIZE``, then to the only rank.
            world_size: Ranks in all.
            shuffle: ``"block"`` for sequential reads shuffled in large windows, ``"full"`` for a uniform permutation
                with random reads, ``False`` for the order of the query.
            last_batch: What happens to a last global batch that is not full: ``"pad"`` (default) repeats rows, marked
                in :attr:`Batch.valid`; ``"drop"``; ``"uneven"`` delivers what is left, for some ranks no row.
            drop_last: ``True`` means ``last_batch="drop"``.
            memory_budget_bytes: Bytes of batches that are being filled or wait to be taken. Default: 1 GiB.
            shuffle_window_bytes: Bytes within which rows mix, over all ranks. Default: 512 MiB.
            block_bytes: Bytes of neighbouring rows that stay together when blocks are shuffled. Default: 512 KiB.
            num_lanes: Parts of the order that are read independently. Default: 48.

        Raises:
            InvalidRequestError: Options that contradict each other, numbers out of range, or a query that is not a
                sample query: one whose output rows do not each carry columns of given table rows. The message has the
                reason.
            NotFoundError: A table, version or tag does not exist.

        Example:
            >>> query = lake.sql("SELECT image, label FROM digits WHERE label < $1", params=[3])
            >>> with query.stream(batch_size=2, seed=7, rank=0, world_size=2) as stream:
            ...     labels = [label for batch in stream for label in batch["label"][batch.valid]]
            >>> len(labels)
            3
        """
        ranks = _distributed.topology(rank, world_size)
        config = SliceConfig(
            batch_size=whole_or_none("batch_size", batch_size, 1, _BATCH_MAX),
            global_batch_size=whole_or_none("global_batch_size", global_batch_size, 1, _BATCH_MAX),
            last_batch=_last_batch(last_batch, drop_last),
            rank=whole("rank", ranks[0], 0, _RANKS_MAX),
            world_size=whole("world_size", ranks[1], 1, _RANKS_MAX),
            memory_budget_bytes=whole_or_none("memory_budget_bytes", memory_budget_bytes, 1),
        )
        if (batch_size is None) == (global_batch_size is None):
            raise InvalidRequestError("give either batch_size or global_batch_size")
        request: _native.StreamRequest = {
            "seed": whole("seed", seed, 0, 2**64 - 1),
            "shuffle": "sequential" if shuffle is False else str(shuffle),
            "shuffle_window_bytes": whole_or_none("shuffle_window_bytes", shuffle_window_bytes, 1),
            "block_bytes": whole_or_none("block_bytes", block_bytes, 1),
            "num_lanes": whole_or_none("num_lanes", num_lanes, 1, _LANES_MAX),
        }
        first_epoch = whole("epoch", epoch, 0)
        native = self._lake._native

        def plan() -> _native.StreamHandle:
            return native.plan_stream(self._sql, self._params, request)

        collective = rank is None and _distributed.process_group() is not None
        handle = _distributed.agree(plan, native.load_stream) if collective else plan()
        return Stream(self._lake, handle, config, first_epoch)

    def torch(self, *, device: Any = None, **options: Any) -> TorchLoader:
        """Pins the rows of this query and returns an iterable of dicts of PyTorch tensors, without worker processes.

        Args:
            device: Where the tensors go. Default: CPU memory, without copying. For a CUDA device, batches are copied
                from pinned memory on a stream of their own, one batch ahead.
            **options: As for :meth:`stream`.

        Raises:
            ImportError: PyTorch is not installed.
            StokerError: As for :meth:`stream`.

        Example:
            >>> loader = lake.sql("SELECT image, label FROM digits").torch(batch_size=4, seed=7)
            >>> batch = next(iter(loader))
            >>> batch["image"].shape, batch["_valid"].tolist()
            (torch.Size([4, 1, 8, 8]), [True, True, True, True])
        """
        from stoker._torch import TorchLoader

        return TorchLoader(self.stream(**options), device)

    def _repr_html_(self) -> str:
        from stoker._html import preview

        return preview(self)

    def __repr__(self) -> str:
        params = f", params={self._params}" if self._params else ""
        return f"Query({self._sql!r}{params})"

    def _run(self) -> _native.QueryResult:
        return self._lake._native.sql(self._sql, self._params)


def _batches(result: _native.QueryResult) -> Iterator[pa.RecordBatch]:
    try:
        while (batch := result.next()) is not None:
            yield pa.record_batch(batch)
    finally:
        result.close()


def _last_batch(last_batch: str | None, drop_last: bool | None) -> str:
    if drop_last and last_batch not in (None, "drop"):
        raise InvalidRequestError(f"drop_last=True contradicts last_batch={last_batch!r}")
    return "drop" if drop_last else last_batch or "pad"
