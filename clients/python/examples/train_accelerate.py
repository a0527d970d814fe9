"""Trains on the table `digits` with Accelerate, on any number of processes, and continues in the middle of an epoch.

    python train_accelerate.py --lake lake --checkpoint checkpoint
    torchrun --nproc-per-node 2 train_accelerate.py --lake lake --checkpoint checkpoint

`prepare` takes the loader itself: inside a `DataLoader`, Accelerate would give each process a part of its part. The
loader is registered, so that `save_state` and `load_state` keep its place, on any number of processes.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from accelerate import Accelerator
from digits_net import DigitsNet
from torch.nn.functional import cross_entropy
from training import Ledger, arguments, leave, loaders, mean_over_ranks, num_channels


def evaluate(accelerator: Accelerator, model: Any, loader: Any, ledger: Ledger, epoch: int) -> None:
    """Prints the accuracy over the rows of all ranks."""
    totals = torch.zeros(2)
    model.eval()
    with torch.inference_mode():
        for batch in loader:
            ledger.write("test", batch, epoch)
            right = accelerator.unwrap_model(model)(batch["image"]).argmax(dim=1) == batch["label"]
            totals += torch.tensor([float(right.sum()), float(len(right))])
    model.train()
    right, num_rows = accelerator.reduce(totals, reduction="sum").tolist()
    accelerator.print(f"epoch {epoch}: accuracy {right / num_rows:.4f} on {int(num_rows)} rows")


def fit(args: argparse.Namespace, accelerator: Accelerator) -> None:
    """Trains up to the last epoch, or up to the step where it is to stop."""
    ledger = Ledger(args.ledger, accelerator.process_index)
    train, test = loaders(args, device=accelerator.device)
    model = DigitsNet(num_channels(args))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    accelerator.register_for_checkpointing(train)
    if args.checkpoint.exists():
        accelerator.load_state(str(args.checkpoint))
    while train.epoch < args.epochs:
        epoch = train.epoch
        for batch in train:
            ledger.write("train", batch, epoch)
            losses = cross_entropy(model(batch["image"]), batch["label"], reduction="none")
            optimizer.zero_grad()
            accelerator.backward(mean_over_ranks(losses, batch.valid))
            optimizer.step()
            if batch.step + 1 == args.stop_after_steps:
                accelerator.save_state(str(args.checkpoint))
                return
        evaluate(accelerator, model, test, ledger, epoch)
    accelerator.save_state(str(args.checkpoint))


def main() -> None:
    """Joins the other processes, trains, and leaves with them."""
    args = arguments(__doc__)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    fit(args, accelerator)
    leave()
    accelerator.end_training()


if __name__ == "__main__":
    main()
