"""The sources of streams: a query, or a mixture of several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stoker import _distributed, _native
from stoker._bucket import Bucket, bucket_request, refuse_sizes
from stoker._compression import Compression
from stoker._config import slice_config
from stoker._decode import ColumnDecoder
from stoker._names import column_name
from stoker._nulls import refuse_nulls
from stoker._numbers import whole, whole_or_none
from stoker._pack import Pack, pack_request
from stoker._stream import Stream

if TYPE_CHECKING:
    from stoker._converted import Transform
    from stoker._jax import JaxLoader
    from stoker._lake import Lake
    from stoker._lightning import DataModule
    from stoker._numpy import NumpyLoader
    from stoker._per_row import PerRow
    from stoker._ragged import Layouts
    from stoker._torch import TorchLoader

__all__ = ["Mixing", "StreamSource"]

Shuffle = Literal["block", "full", False]
LastBatch = Literal["pad", "drop", "uneven"]
BadRows = Literal["error", "substitute"]

#: The maximum number of lanes.
_LANES_MAX = 2**16


@dataclass(frozen=True)
class Mixing:
    """The options that mix several queries into one stream.

    Attributes:
        weights: The share of each query.
        stop: ``"first"``, ``"all"`` or ``"rows"``.
        epoch_rows: The number of rows of an epoch, for ``"rows"``.
    """

    weights: list[float]
    stop: str
    epoch_rows: int


class StreamSource(ABC):
    """A source of streams: :class:`Query` or :class:`Mixture`."""

    @abstractmethod
    def _sources(self) -> tuple[Lake, list[tuple[str, Sequence[Any]]], Mixing | None]:
        """Returns the lake, the queries with their parameters, and how they are mixed."""

    def stream(
        self,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: Any = None,
        process_group: Any = None,
        shuffle: Shuffle = "block",
        last_batch: LastBatch | None = None,
        drop_last: bool | None = None,
        memory_budget_bytes: int | None = None,
        shuffle_window_bytes: int | None = None,
        block_bytes: int | None = None,
        num_lanes: int | None = None,
        order_version: int | None = None,
        weight: str | None = None,
        pack: Pack | None = None,
        bucket: Bucket | None = None,
        bad_rows: BadRows = "error",
        max_bad_share: float | None = None,
        verify: bool = True,
        retry_budget_secs: int | None = None,
        compression: Compression | None = None,
        run_id: str | None = None,
        run_log: bool = False,
        decode: Mapping[str, ColumnDecoder] | None = None,
        decode_threads: int | None = None,
        evaluation: bool = False,
        allow_nulls: bool = True,
    ) -> Stream:
        """Pins the rows, and returns the stream of this rank's batches.

        Every row is delivered exactly once per epoch over all ranks, for any numbers of rows, ranks and batch sizes.
        The order depends only on rows, seed, epoch and the shuffle options: with the same global batch size, a global
        batch has the same rows on any number of ranks. ``docs/guarantees.md`` lists all guarantees and their
        conditions.

        If ``torch.distributed`` is initialised and neither ``rank`` nor ``world_size`` is given, this is a collective
        call: all ranks must make it, rank 0 plans, all ranks use its snapshots, and ranks that ask for another stream
        are refused. Without a process group, ranks that ``torchrun`` started agree in the same way, and so do ranks
        that give the same ``run_id``.

        Args:
            batch_size: Rows per rank and batch. Left out with ``bucket``.
            global_batch_size: Rows of all ranks per batch, instead of ``batch_size``; the ranks' shares differ by at
                most one row.
            seed: The seed of the order, from 0 to 2**64 - 1.
            epoch: The first epoch, zero-based.
            rank: The rank of this process. Default, with ``world_size``: from ``torch.distributed``, otherwise from the
                environment variables ``RANK`` and ``WORLD_SIZE``, otherwise a single rank.
            world_size: The number of ranks.
            mesh: Instead of ``rank`` and ``world_size``: a ``DeviceMesh`` of the data-parallel dimensions, such as
                ``mesh["dp"]``. Ranks that differ only in other dimensions (tensor or context parallel) get the same
                rows. For JAX: the ``Sharding`` of the rows.
            process_group: Instead of a mesh: the group of ``torch.distributed`` whose ranks share the rows.
            shuffle: ``"block"`` for sequential reads that are shuffled in large windows, ``"full"`` for a uniform
                permutation, which needs random reads, ``False`` for the order of the query.
            last_batch: What to do with a last global batch that is not full: ``"pad"`` repeats rows, which
                :attr:`Batch.valid` marks; ``"drop"`` leaves the batch out; ``"uneven"`` delivers the rows that are
                left, which may be none for some ranks. Default: ``"uneven"`` for a single rank and for evaluations,
                ``"pad"`` for several ranks.
            drop_last: ``True`` means ``last_batch="drop"``.
            memory_budget_bytes: The maximum bytes of batches that are being filled or wait to be taken; the streams of
                one connection share its budget, see :func:`connect`. Default: 1 GiB.
            shuffle_window_bytes: The bytes within which rows are mixed, over all ranks. Default: 160 MiB, and 512 MiB
                with ``order_version=1`` and for mixtures.
            block_bytes: The bytes of a block: neighbouring rows that stay together when blocks are shuffled. Default:
                512 KiB.
            num_lanes: The number of parts of the order that are read independently. Default: 48.
            order_version: The version of the order's definition, 1 or 2. Version 2 mixes rows as well as version 1 with
                half of the memory or less. Mixtures have version 1. Default: the version of the run that ``run_id``
                names, or of the state that :meth:`Stream.load_state_dict` loads; otherwise 2, or 1 if all rows fit
                ``shuffle_window_bytes``.
            weight: A column of the query with a number for each row: how often the row comes in an epoch, on average. A
                row of weight 2.5 comes two or three times, one of weight 0 never; which it is, is drawn from the seed
                for each epoch. An epoch has as many rows as the weights add up to, rounded down. Each query of a
                mixture needs the column. Default: each row comes once.
            pack: Fills sequences of one length with whole documents, see :class:`Pack`. The rows of the stream are then
                packs: ``batch_size``, positions and ``len`` count packs. Not together with ``weight``.
            bucket: Puts rows of similar length together under a limit of tokens, see :class:`Bucket`. Each batch of a
                rank has the rows of one bucket; positions and ``len`` count buckets. Not together with ``weight`` or
                ``pack``.
            bad_rows: What to do with a bad row: one whose stored bytes do not match their checksum, or whose value
                (``decode``) is null or cannot be decoded, even after a second read. ``"error"`` fails; ``"substitute"``
                replaces the row by the next good row of the same window, the same on every rank, which
                :attr:`Batch.substituted` and the receipt record.
            max_bad_share: With ``bad_rows="substitute"``: the share, from 0 to 1, of the rows of a window
                (``shuffle_window_bytes``) that may be bad; the stream fails if there are more. 16 rows may be bad in
                any case. Default: 0.01.
            verify: Whether the checksums of heavy columns are verified.
            retry_budget_secs: Seconds for which a read is retried after transient faults of the storage. Default: 120.
            compression: The codec that compresses batches on their way from a server: ``"lz4"`` is fast, ``"zstd"``
                compresses more and takes more processor time on both sides. Use it if the network is slower than the
                rest of the job and the rows compress: masks, token ids, sparse tensors and text do, photos as ``uint8``
                and encoded images hardly do. Order and state do not depend on it, so that it may change at a resume. A
                lake in this process ignores it. Default: none.
            run_id: The name of the training run: letters, digits, ``_``, ``-`` and ``.``. All processes that give the
                same name get the stream, and with it the snapshots, that the first of them planned, also after a
                restart.
            run_log: Whether rank 0 records in the table ``stoker_run_log`` which positions each step had, so that
                :meth:`Lake.run` and ``stoker replay`` find the rows of any step. At the end of an epoch, each rank adds
                the bad rows that it met to the table ``stoker_bad_rows``. Needs ``run_id``.
            decode: For columns of files, or of lists or structs (field ``bytes``) of them: what decodes each column, an
                :class:`ImageTransform`, :class:`AudioClip` or :class:`VideoClip`; for columns of text a
                :class:`Tokenizer`; for both a function as a :class:`Decoder`.
                Threads of this process decode the values before the loop asks for their batch, also if the lake is
                behind a server; a batch then has arrays instead of the files. Order and state do not depend on it, so
                that it may change at a resume. A value that is null or cannot be decoded makes its row bad, see
                ``bad_rows``; give all ranks the same decoders. Compressed tensors are decoded without being named here,
                and ``False`` gives the bytes of such a column as they are stored.
            decode_threads: The number of threads that decode, for each decoded column. Default: the number of cores.
            evaluation: Whether every pass delivers the same epoch from its start, even if the pass before it was left
                early: for validation.
            allow_nulls: Whether tensors, vectors, lists, integers and booleans may be null. NumPy and PyTorch cannot
                hold such nulls: they become zeros or empty rows, with one warning, and :meth:`Batch.is_valid` tells
                them. ``False`` refuses a stream with such rows; this call then scans the nullable columns once to find
                them. It finds null rows, not nulls among the numbers of a vector or list.

        Raises:
            InvalidRequestError: Options contradict each other, a number is out of range, there are nulls that
                ``allow_nulls`` forbids, or the query is not a sample query, which is one whose output rows each carry
                columns of given table rows. The message has the reason.
            NotFoundError: A table, version or tag does not exist.
            StateMismatchError: The run was started with another query, another seed or other options.

        Example:
            >>> query = lake.sql("SELECT image, label FROM digits WHERE label < $1", params=[3])
            >>> with query.stream(batch_size=2, seed=7, rank=0, world_size=2) as stream:
            ...     labels = [label for batch in stream for label in batch["label"][batch.valid]]
            >>> len(labels)
            3
        """
        ranks = _distributed.ranks_of(rank, world_size, mesh, process_group)
        asked_bucket = bucket_request(bucket)
        if asked_bucket is not None:
            refuse_sizes(batch_size, global_batch_size)
            batch_size = 1
        config = slice_config(
            ranks=ranks,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            last_batch=last_batch,
            drop_last=drop_last,
            memory_budget_bytes=memory_budget_bytes,
            bad_rows=bad_rows,
            max_bad_share=max_bad_share,
            verify=verify,
            retry_budget_secs=retry_budget_secs,
            compression=compression,
            run_id=run_id,
            run_log=run_log,
            decode=decode,
            decode_threads=decode_threads,
            evaluation=evaluation,
        )
        lake, queries, mixing = self._sources()
        request: _native.StreamRequest = {
            "seed": whole("seed", seed, 0, 2**64 - 1),
            "shuffle": "sequential" if shuffle is False else str(shuffle),
            "shuffle_window_bytes": whole_or_none("shuffle_window_bytes", shuffle_window_bytes, 1),
            "block_bytes": whole_or_none("block_bytes", block_bytes, 1),
            "num_lanes": whole_or_none("num_lanes", num_lanes, 1, _LANES_MAX),
            "order_version": whole_or_none("order_version", order_version, 1, 2),
            "weight": None if weight is None else column_name("weight", weight),
            "pack": pack_request(pack),
            "bucket": asked_bucket,
            "weights": None if mixing is None else mixing.weights,
            "stop": "first" if mixing is None else mixing.stop,
            "epoch_rows": 0 if mixing is None else mixing.epoch_rows,
            "run_id": run_id,
        }
        first_epoch = whole("epoch", epoch, 0)
        native = lake._native
        asked = {
            **config.agreed(),
            **request,
            "epoch": first_epoch,
            "world_size": ranks.world_size,
            "query": [text for text, _ in queries],
            "params": [_distributed.fingerprint(params) for _, params in queries],
        }

        def plan() -> _native.StreamHandle:
            handle = native.plan_stream(queries, request)
            return handle if allow_nulls else refuse_nulls(handle)

        handle = _distributed.agree(ranks, asked, plan, native.load_stream)
        session = config.request(any_order_version=order_version is None)
        return Stream(lake, _native.Session(native, handle, session, first_epoch))

    def torch(
        self,
        *,
        device: Any = None,
        transform: Transform | None = None,
        transform_threads: int = 0,
        collate_fn: Callable[[list[dict[str, Any]]], Any] | None = None,
        valid_key: str | None = None,
        int64_columns: Sequence[str] = (),
        ragged: Layouts = None,
        null_masks: Sequence[str] | bool = (),
        **options: Any,
    ) -> TorchLoader:
        """Pins the rows, and returns an iterable of dicts of PyTorch tensors, without worker processes.

        Args:
            device: The device of the tensors. Default: CPU memory, without copying. For a CUDA device, batches are
                copied from pinned memory on a CUDA stream of their own, one batch ahead.
            transform: A function that is called with the dict of each batch, before the batch is copied to the device;
                the loop gets its return value. Mappings become :class:`TorchBatch`, which has the batch's cursor and
                mask. An exception of the function ends the loop; its note names the step and the rows. Or a function of
                single rows, as a :class:`PerRow`.
            transform_threads: The number of threads that call ``transform`` and ``collate_fn`` ahead of the loop, for
                as many batches, which they hold in memory beside the memory budget. Default: none; the loop's thread
                calls them.
            collate_fn: A function that is called with the rows of each batch as a list of dicts, like that of a
                ``DataLoader``; the loop gets its return value. It costs Python work for each row, which ``transform``
                does not.
            valid_key: A key under which each batch has its validity mask, for models and trainers that only see the
                dict. Default: no key; the mask is ``batch.valid``.
            int64_columns: Integer columns to convert to int64 tensors, which ``cross_entropy`` requires for labels.
            ragged: How rows of different lengths are handed out, for each column or for all of them: ``"list"`` for a
                list with a tensor for each row, ``"jagged"`` for a nested tensor over the Arrow memory
                (``torch.nested``), ``"pad"`` or a :class:`Pad` for a tensor of shape ``(rows, length, …)``. Default:
                ``"list"``.
            null_masks: Columns whose masks of nulls each batch has, under the key ``<column>_valid``; ``True`` for all
                nullable columns. Default: none; ``batch.is_valid(column)`` has them too.
            **options: As for :meth:`stream`.

        Raises:
            ImportError: PyTorch is not installed.
            StokerError: As for :meth:`stream`.

        Example:
            >>> query = lake.sql("SELECT image, label FROM digits")
            >>> loader = query.torch(batch_size=4, seed=7, int64_columns=["label"])
            >>> batch = next(iter(loader))
            >>> batch["image"].shape, batch["label"].dtype, batch.valid.tolist()
            (torch.Size([4, 1, 8, 8]), torch.int64, [True, True, True, True])
        """
        return self.stream(**options).torch(
            device=device,
            transform=transform,
            transform_threads=transform_threads,
            collate_fn=collate_fn,
            valid_key=valid_key,
            int64_columns=int64_columns,
            ragged=ragged,
            null_masks=null_masks,
        )

    def numpy(
        self,
        *,
        transform: Transform | None = None,
        transform_threads: int = 0,
        valid_key: str | None = None,
        ragged: Layouts = None,
        null_masks: Sequence[str] | bool = (),
        **options: Any,
    ) -> NumpyLoader:
        """Pins the rows, and returns an iterable of dicts of NumPy arrays, for loops without a framework.

        Args:
            transform: A function that is called with the dict of each batch; the loop gets its return value. Mappings
                become :class:`NumpyBatch`, which has the batch's cursor and mask. Or a function of single rows, as a
                :class:`PerRow`.
            transform_threads: As for :meth:`torch`.
            valid_key: A key under which each batch has its validity mask. Default: no key; the mask is
                ``batch.valid``.
            ragged: How rows of different lengths are handed out, for each column or for all of them: ``"list"`` for an
                array of objects with an array for each row, ``"jagged"`` for a :class:`Jagged`, ``"pad"`` or a
                :class:`Pad` for an array of shape ``(rows, length, …)``. Default: ``"list"``.
            null_masks: Columns whose masks of nulls each batch has, under the key ``<column>_valid``; ``True`` for all
                nullable columns. Default: none; ``batch.is_valid(column)`` has them too.
            **options: As for :meth:`stream`.

        Raises:
            StokerError: As for :meth:`stream`.

        Example:
            >>> query = lake.sql("SELECT image, label FROM digits")
            >>> batch = next(iter(query.numpy(batch_size=4, seed=7)))
            >>> batch["image"].shape, batch["label"].dtype, batch.valid.tolist()
            ((4, 1, 8, 8), dtype('int64'), [True, True, True, True])
        """
        return self.stream(**options).numpy(
            transform=transform,
            transform_threads=transform_threads,
            valid_key=valid_key,
            ragged=ragged,
            null_masks=null_masks,
        )

    def jax(
        self,
        *,
        sharding: Any = None,
        transform: Transform | None = None,
        transform_threads: int = 0,
        valid_key: str | None = None,
        ragged: Layouts = "pad",
        null_masks: Sequence[str] | bool = (),
        **options: Any,
    ) -> JaxLoader:
        """Pins the rows, and returns an iterable of dicts of JAX arrays.

        All batches have one size: the last one is padded, which ``batch.valid`` and ``valid_key`` mark, unless
        ``last_batch`` says otherwise.

        Args:
            sharding: The ``jax.sharding.Sharding`` of the arrays, whose first dimension are the rows: each array is
                then one array over all devices, and each process reads the rows of its own devices only. Default:
                arrays on the default device.
            transform: A function that is called with the dict of each batch; the loop gets its return value. Or a
                function of single rows of NumPy arrays, as a :class:`PerRow`.
            transform_threads: As for :meth:`torch`.
            valid_key: A key under which each batch has its validity mask. Default: no key; the mask is
                ``batch.valid``.
            ragged: As for :meth:`numpy`; but rows of different lengths are padded by default. Give a :class:`Pad` with
                ``length`` or ``multiple``, so that compiled functions see few shapes.
            null_masks: As for :meth:`numpy`.
            **options: As for :meth:`stream`.

        Raises:
            ImportError: JAX is not installed.
            StokerError: As for :meth:`stream`, and for a sharding that is none of rows.
        """
        from stoker._jax import stream_options

        return self.stream(**stream_options(sharding, options)).jax(
            sharding=sharding,
            transform=transform,
            transform_threads=transform_threads,
            valid_key=valid_key,
            ragged=ragged,
            null_masks=null_masks,
        )

    def lightning(
        self,
        *,
        val: StreamSource | None = None,
        test: StreamSource | None = None,
        predict: StreamSource | None = None,
        **options: Any,
    ) -> DataModule:
        """Returns a data module of Lightning, which trains on the rows of this query.

        Args:
            val: The rows of validations.
            test: The rows of tests.
            predict: The rows of predictions.
            **options: As for :meth:`torch` and :meth:`stream`, for all loaders. Those of ``val``, ``test`` and
                ``predict`` deliver each row once, in the order of the query.

        Raises:
            ImportError: Neither ``lightning`` nor ``pytorch_lightning`` is installed.

        Example:
            >>> data = lake.sql("SELECT image, label FROM digits WHERE label < 2").lightning(
            ...     val=lake.sql("SELECT image, label FROM digits WHERE label = 2"), batch_size=4
            ... )
            >>> data.setup("fit")
            >>> next(iter(data.train_dataloader()))["image"].shape
            torch.Size([4, 1, 8, 8])
        """
        from stoker._lightning import DataModule

        return DataModule.of({"train": self, "val": val, "test": test, "predict": predict}, options)

    def tensorflow(
        self,
        *,
        ragged: Layouts = "jagged",
        valid_key: str | None = None,
        transform: PerRow | None = None,
        **options: Any,
    ) -> Any:
        """Pins the rows, and returns a ``tf.data.Dataset`` of dicts of tensors, with the exact ``element_spec``.

        Each iteration over the dataset is one pass over the stream, that is, one epoch. The stream is the attribute
        ``stoker`` of the dataset: its state is that after the last batch that TensorFlow took, which is ahead of the
        loop if the dataset is prefetched or mapped in parallel, which TensorFlow does only if it is asked to.

        Args:
            ragged: How rows of different lengths are handed out: ``"jagged"`` for a ``tf.RaggedTensor``, ``"pad"`` or a
                :class:`Pad` for a tensor of shape ``(rows, length, …)``. Default: ``"jagged"``.
            valid_key: A key under which each batch has its validity mask. Default: no key.
            transform: A function of single rows of NumPy arrays, as a :class:`PerRow` with ``outputs``; the dataset has
                its keys instead of the columns. Functions of TensorFlow are for the method ``map`` of the dataset.
            **options: As for :meth:`stream`.

        Raises:
            ImportError: TensorFlow is not installed.
            StokerError: As for :meth:`stream`.
        """
        return self.stream(**options).tensorflow(ragged=ragged, valid_key=valid_key, transform=transform)
