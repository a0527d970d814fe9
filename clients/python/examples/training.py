"""What the trainer examples share: their arguments, the loss over the rows of all ranks, and a ledger of rows."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import stoker

TRAIN = "SELECT image, label FROM digits WHERE split = 'train'"
TEST = "SELECT image, label FROM digits WHERE split = 'test'"


def arguments(text: str | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", required=True, help="a lake or a server that stoker.connect understands")
    parser.add_argument("--checkpoint", type=Path, required=True, help="where the job's state is kept")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--global-batch-size", type=int, default=48, help="rows of a step, over all ranks")
    parser.add_argument("--stop-after-steps", type=int, help="save a checkpoint after so many steps, and stop")
    parser.add_argument("--ledger", type=Path, help="folder for the ids of the rows that the loops got")
    parser.add_argument("--receipts", type=Path, help="folder for the receipt of each rank")
    return parser.parse_args()


def loaders(args: argparse.Namespace, **options: Any) -> tuple[Any, Any]:
    """Returns the loaders for training and for evaluation, which every rank makes.

    Both have int64 labels. The global batch size is that of the job, so that a resume on another number of ranks goes
    on with the same steps.
    """
    lake = stoker.connect(args.lake)
    options = {"global_batch_size": args.global_batch_size, "int64_columns": ["label"], **options}
    train = lake.sql(TRAIN).torch(seed=7, **options)
    return train, lake.sql(TEST).torch(shuffle=False, evaluation=True, **options)


def write_receipt(args: argparse.Namespace, loader: Any) -> None:
    """Writes which positions the loop of this rank got; `stoker verify` checks the receipts of all ranks together."""
    if args.receipts is not None:
        args.receipts.mkdir(parents=True, exist_ok=True)
        name = f"rank{loader.stream.rank}-of-{loader.stream.world_size}.json"
        (args.receipts / name).write_text(json.dumps(loader.receipt()), encoding="utf-8")


def num_channels(args: argparse.Namespace) -> int:
    """The number of colour channels of the images."""
    shape = stoker.tensor_shape(stoker.connect(args.lake).sql(TRAIN).schema.field("image"))
    return int(shape[0])


def leave() -> None:
    """Ends the process group, if there is one, once all ranks are done: its threads may abort a process that exits."""
    if dist.is_initialized():
        dist.barrier()
        # A thread of the group frees the tensors of the barrier, for which it needs the interpreter's lock. At the
        # exit, PyTorch waits for this thread while it holds the lock, so the thread must be done before.
        time.sleep(0.1)
        dist.destroy_process_group()


def mean_over_ranks(losses: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """The mean loss over the rows of all ranks, for DDP, which averages gradients over ranks.

    Padding counts nothing, and a rank without rows takes part with a loss of zero: the mean of the ranks' means would
    weigh rows of small shares more.
    """
    num_rows = valid.sum().to(losses.dtype)
    world_size = 1
    if dist.is_initialized():
        dist.all_reduce(num_rows)
        world_size = dist.get_world_size()
    return (losses * valid).sum() * world_size / num_rows


class Ledger:
    """The rows that a rank got, one line of JSON per batch, in a file of its own."""

    def __init__(self, folder: Path | None, rank: int) -> None:
        """Opens the file; without a folder, nothing is written."""
        self._file = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"rank{rank}.jsonl").open("w", encoding="utf-8")

    def write(self, phase: str, batch: Any, loop_epoch: int) -> None:
        """Notes the rows of a batch that are not padding."""
        if self._file is not None:
            rows = batch.row_ids[batch.valid.cpu().numpy()].tolist()
            line = {"phase": phase, "epoch": batch.cursor.epoch, "loop_epoch": loop_epoch, "rows": rows}
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
