"""Trains a small network on the table `digits`, on any number of ranks, and continues where an earlier run stopped.

Every rank is one process, started by `torchrun`:

    torchrun --nproc-per-node 2 train_digits.py --lake grpc://127.0.0.1:50051 --checkpoint digits.pt

The checkpoint holds the model, the optimizer and the loader's state. A run that finds one continues at that position,
whatever number of ranks wrote it: with the same global batch size it sees the same batches as if nothing had happened.
With `--ledger`, every rank writes down the ids of the rows that it trained on, for check_ledger.py.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from digits_net import DigitsNet
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import stoker

QUERY = "SELECT image, label FROM digits WHERE split = 'train'"


class Ledger:
    """The rows that a rank trained on, one line of JSON per batch."""

    def __init__(self, folder: Path | None, run: str, rank: int) -> None:
        """Opens the file of this run and rank; without a folder, nothing is written."""
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._file = None if folder is None else (folder / f"{run}-rank{rank}.jsonl").open("w", encoding="utf-8")

    def write(self, **line: Any) -> None:
        """Adds a line."""
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Makes the lines so far survive whatever happens to this process or machine."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())


class Job:
    """One rank of the training job."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Connects to the lake and loads the checkpoint if there is one."""
        self.args = args
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.ledger = Ledger(args.ledger, args.run, self.rank)
        torch.manual_seed(args.seed)
        begun = time.perf_counter()
        query = stoker.connect(args.lake).sql(QUERY)
        self.loader = query.torch(global_batch_size=args.global_batch_size, seed=args.seed)
        self.planning_secs = time.perf_counter() - begun
        self.model = DistributedDataParallel(DigitsNet(num_channels(query)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        if args.checkpoint.exists():
            self.resume()

    def resume(self) -> None:
        """Continues at the checkpoint's position."""
        state = torch.load(self.args.checkpoint, weights_only=True)
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        epoch, position = state["loader"]["epoch"], state["loader"]["position"]
        self.ledger.write(resumed_at=[epoch, position])
        self.say(f"resumed on {self.world_size} ranks at epoch {epoch}, position {position}")

    def save(self) -> None:
        """Writes a checkpoint that every rank's ledger covers; a reader sees the old one or the new one."""
        self.ledger.sync()
        dist.barrier()
        if self.rank == 0:
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "loader": self.loader.state_dict(),
            }
            staged = self.args.checkpoint.with_suffix(".tmp")
            with staged.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(self.args.checkpoint)

    def train(self) -> None:
        """Trains up to the last epoch and prints what it measured."""
        begun = time.perf_counter()
        num_rows, first_batch_secs = 0, None
        while self.loader.epoch < self.args.epochs:
            epoch, loss = self.loader.epoch, 0.0
            for step, batch in enumerate(self.loader, start=1):
                if first_batch_secs is None:
                    first_batch_secs = time.perf_counter() - begun
                loss, num_valid = self.step(batch)
                num_rows += num_valid
                self.ledger.write(epoch=epoch, position=batch.cursor.position, rows=rows_of(batch))
                if step % self.args.checkpoint_every == 0:
                    self.save()
                self.say(f"epoch {epoch} step {step} position {batch.cursor.position} loss {loss:.4f}")
            self.say(f"epoch {epoch} ended, loss of the last batch {loss:.4f}")
        self.save()
        elapsed = time.perf_counter() - begun
        self.say(
            f"figure training, {self.world_size} ranks through `stoker serve`: {num_rows / elapsed:,.0f} samples/s"
        )
        first_ms, planning_ms = 1000 * (first_batch_secs or 0.0), 1000 * self.planning_secs
        self.say(f"figure time to first batch after the resume: {first_ms:.0f} ms, planning {planning_ms:.0f} ms")

    def step(self, batch: Any) -> tuple[float, int]:
        """Trains on one batch; gives the loss over the rows of all ranks, and their number. Padding does not count."""
        valid = batch.valid
        losses = cross_entropy(self.model(batch["image"]), batch["label"].long(), reduction="none")
        totals = torch.stack([(losses.detach() * valid).sum(), valid.sum().to(losses.dtype)])
        dist.all_reduce(totals)
        # DDP averages the gradients over the ranks: this scale makes that the mean over all valid rows.
        loss = (losses * valid).sum() * self.world_size / totals[1]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(totals[0] / totals[1]), int(totals[1])

    def say(self, text: str) -> None:
        """Prints a line, on rank 0 only."""
        if self.rank == 0:
            print(text, flush=True)


def num_channels(query: Any) -> int:
    """The number of colour channels of the images in a query's result."""
    shape = stoker.tensor_shape(query.schema.field("image"))
    return int(shape[0])


def rows_of(batch: Any) -> list[int]:
    """The ids of a batch's rows without padding."""
    ids = batch.row_ids
    return [int(row) for row, valid in zip(ids, batch.valid, strict=True) if valid]


def main() -> None:
    """Joins the other ranks and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", required=True, help="a lake or a server that stoker.connect understands")
    parser.add_argument("--checkpoint", type=Path, required=True, help="where the job's state is kept")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps between two checkpoints")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--global-batch-size", type=int, default=48, help="rows of a step, over all ranks")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ledger", type=Path, help="folder for the ids of the rows that were trained on")
    parser.add_argument("--run", default="run", help="name of this run in the ledger")
    parser.add_argument("--rendezvous", default="env://", help="how the ranks find each other")
    args = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=args.rendezvous, rank=rank, world_size=world_size)
    try:
        Job(args).train()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
