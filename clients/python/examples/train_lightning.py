"""Trains on the table `digits` with Lightning, on any number of processes, and continues in the middle of an epoch.

    python train_lightning.py --lake lake --checkpoint digits.ckpt
    torchrun --nproc-per-node 2 train_lightning.py --lake lake --checkpoint digits.ckpt

The data module of the query makes the loaders where Lightning has started the process group, and Lightning keeps the
state of the training loader in its checkpoints. A run that finds the checkpoint continues there, on any number of
processes.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import lightning
import torch
from digits_net import DigitsNet
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy
from training import TEST, TRAIN, Ledger, arguments, leave, mean_over_ranks, num_channels

import stoker


class Digits(lightning.LightningModule):
    """The network with its training and validation steps."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Takes the arguments of the command line."""
        super().__init__()
        self.args = args
        self.net = DigitsNet(num_channels(args))
        self.totals = torch.zeros(2)

    def setup(self, stage: str) -> None:
        """Opens the ledger where the rank is known: Lightning has started the process group."""
        self.ledger = Ledger(self.args.ledger, self.global_rank)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Trains on one batch, which keeps its mask and place when Lightning moves it to a device."""
        self.ledger.write("train", batch, self.current_epoch)
        losses = cross_entropy(self.net(batch["image"]), batch["label"], reduction="none")
        return mean_over_ranks(losses, batch.valid)

    def on_validation_epoch_start(self) -> None:
        """Begins to count."""
        self.totals = torch.zeros(2)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Counts the right answers of one batch; its last one may have no row on some ranks."""
        phase = "sanity" if self.trainer.sanity_checking else "test"
        self.ledger.write(phase, batch, self.current_epoch)
        right = self.net(batch["image"]).argmax(dim=1) == batch["label"]
        self.totals += torch.tensor([float(right.sum()), float(len(right))])

    def on_validation_epoch_end(self) -> None:
        """Logs the accuracy over the rows of all ranks."""
        right, num_rows = self.trainer.strategy.reduce(self.totals, reduce_op="sum").tolist()
        self.log("accuracy", right / max(num_rows, 1), rank_zero_only=True)
        if not self.trainer.sanity_checking:
            self.print(f"epoch {self.current_epoch}: accuracy {right / num_rows:.4f} on {int(num_rows)} rows")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer."""
        return torch.optim.Adam(self.net.parameters(), lr=2e-3)


def main() -> None:
    """Trains up to the last epoch, or up to the step where it is to stop."""
    args = arguments(__doc__)
    torch.set_num_threads(1)
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    every = args.stop_after_steps or 50
    saving = ModelCheckpoint(
        dirpath=args.checkpoint.parent,
        filename=args.checkpoint.stem,
        every_n_train_steps=every,
        save_on_train_epoch_end=False,
        enable_version_counter=False,
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=num_processes,
        strategy="ddp" if num_processes > 1 else "auto",
        max_epochs=args.epochs,
        max_steps=args.stop_after_steps or -1,
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    lake = stoker.connect(args.lake)
    data = lake.sql(TRAIN).lightning(
        val=lake.sql(TEST), seed=7, global_batch_size=args.global_batch_size, int64_columns=["label"]
    )
    resume = args.checkpoint if args.checkpoint.exists() else None
    trainer.fit(Digits(args), datamodule=data, ckpt_path=resume, weights_only=False)
    leave()


if __name__ == "__main__":
    main()
