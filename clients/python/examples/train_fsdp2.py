"""Trains on the table `digits` with FSDP2, on any number of processes, and continues in the middle of an epoch.

    python train_fsdp2.py --lake lake --checkpoint checkpoint
    torchrun --nproc-per-node 2 train_fsdp2.py --lake lake --checkpoint checkpoint --receipts receipts

Each process holds a shard of the network, and gets its own rows: those of its place in the mesh. The receipts of all
processes prove that each row of an epoch was delivered once: `stoker verify receipts/*.json --lake lake`.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.distributed as dist
from digits_net import DigitsNet
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from training import Ledger, arguments, leave, loaders, mean_over_ranks, num_channels, write_receipt


def save(args: argparse.Namespace, model: torch.nn.Module, optimizer: torch.optim.Optimizer, train: Any) -> None:
    """Saves the whole network, the optimizer and the loader's state, which is the same on all ranks."""
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=whole)
    if dist.get_rank() == 0:
        state = {"model": model_state, "optimizer": optimizer_state, "loader": train.state_dict()}
        torch.save(state, args.checkpoint)
    write_receipt(args, train)


def load(args: argparse.Namespace, model: torch.nn.Module, optimizer: torch.optim.Optimizer, train: Any) -> None:
    """Continues from a checkpoint of any number of processes."""
    state = torch.load(args.checkpoint, weights_only=False)
    whole = StateDictOptions(full_state_dict=True, broadcast_from_rank0=False)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=whole
    )
    train.load_state_dict(state["loader"])


def evaluate(model: torch.nn.Module, loader: Any, ledger: Ledger, epoch: int) -> None:
    """Prints the accuracy over the rows of all ranks."""
    totals = torch.zeros(2)
    with torch.no_grad():
        for batch in loader:
            ledger.write("test", batch, epoch)
            right = model(batch["image"]).argmax(dim=1) == batch["label"]
            totals += torch.tensor([float((right & batch.valid).sum()), float(batch.num_valid)])
    dist.all_reduce(totals)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: accuracy {totals[0] / totals[1]:.4f} on {int(totals[1])} rows")


def fit(args: argparse.Namespace) -> None:
    """Trains up to the last epoch, or up to the step where it is to stop."""
    ledger = Ledger(args.ledger, dist.get_rank())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    # The last batches are padded, because all ranks must run the network as often.
    train, test = loaders(args, mesh=mesh["dp"], last_batch="pad")
    model = DigitsNet(num_channels(args))
    for layer in model.layers:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    if args.checkpoint.exists():
        load(args, model, optimizer, train)
    while train.epoch < args.epochs:
        epoch = train.epoch
        for batch in train:
            ledger.write("train", batch, epoch)
            losses = cross_entropy(model(batch["image"]), batch["label"], reduction="none")
            optimizer.zero_grad()
            mean_over_ranks(losses, batch.valid).backward()
            optimizer.step()
            if batch.step + 1 == args.stop_after_steps:
                save(args, model, optimizer, train)
                return
        evaluate(model, test, ledger, epoch)
    save(args, model, optimizer, train)


def main() -> None:
    """Joins the other processes, trains, and leaves with them."""
    args = arguments(__doc__)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # without torchrun, one process
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    fit(args)
    leave()


if __name__ == "__main__":
    main()
