"""Trains on the table `digits` with the Trainer of Transformers, on any number of processes, and continues mid-epoch.

    python train_transformers.py --lake lake --checkpoint checkpoint
    torchrun --nproc-per-node 2 train_transformers.py --lake lake --checkpoint checkpoint

The Trainer would make a `DataLoader` of its own around a dataset; `get_train_dataloader` and `get_eval_dataloader`
return the loaders instead. The Trainer passes batches to the model as keywords and keeps nothing else of them: labels
of padding become -100, which losses and metrics leave out. The loader's state lies in each checkpoint, and
`ignore_data_skip` tells the Trainer not to read its way to the place by itself.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from digits_net import DigitsNet
from torch import nn
from torch.nn.functional import cross_entropy
from training import Ledger, arguments, leave, loaders, num_channels
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

#: The label that `cross_entropy` and the metrics leave out.
IGNORED = -100


def with_ignored_padding(batch: dict[str, Any]) -> dict[str, Any]:
    """Makes a batch what the model takes: padding has no label."""
    labels = torch.where(batch["valid"], batch["label"], IGNORED)
    return {"image": batch["image"], "labels": labels}


class DigitsModel(nn.Module):
    """The network in the form that the Trainer expects: keywords in, loss and logits out."""

    def __init__(self, num_channels: int) -> None:
        """Takes the number of colour channels of the images."""
        super().__init__()
        self.net = DigitsNet(num_channels)

    def forward(self, image: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Gives the mean loss over the rows that have a label, and the logits."""
        logits = self.net(image)
        losses = cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
        return {"loss": losses / labels.ne(IGNORED).sum().clamp(min=1), "logits": logits}


class LoaderState(TrainerCallback):
    """Keeps the loader's state beside each checkpoint, and stops after a number of steps."""

    def __init__(self, loader: Any, stop_after_steps: int | None) -> None:
        """Takes the loader, and the step after which a checkpoint is made and training ends."""
        self.loader = loader
        self.stop_after_steps = stop_after_steps

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Stops where that was asked for."""
        if state.global_step == self.stop_after_steps:
            control.should_save = control.should_training_stop = True

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Writes the state, which is the same on all ranks."""
        if state.is_world_process_zero:
            path = Path(args.output_dir or ".") / f"checkpoint-{state.global_step}" / "loader.json"
            path.write_text(json.dumps(self.loader.state_dict()), encoding="utf-8")


class DigitsTrainer(Trainer):
    """The Trainer with our loaders in the place of datasets."""

    def __init__(self, wanted: argparse.Namespace, **options: Any) -> None:
        """Takes the arguments of the command line and what the Trainer takes."""
        super().__init__(**options)
        self.ledger = Ledger(wanted.ledger, self.args.process_index)
        self.add_callback(LoaderState(self.train_dataset, wanted.stop_after_steps))

    def get_train_dataloader(self) -> Any:
        """The loader as it is."""
        return self.train_dataset

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The loader whose passes all begin at the start."""
        return self.eval_dataset

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Notes the rows before the Trainer rebuilds the batch."""
        self.ledger.write("train", inputs, self.get_train_dataloader().epoch)
        return super().training_step(model, inputs, num_items_in_batch)

    def prediction_step(self, model: nn.Module, inputs: Any, *args: Any, **options: Any) -> Any:
        """Notes the rows before the Trainer rebuilds the batch."""
        self.ledger.write("test", inputs, round(self.state.epoch or 0))
        return super().prediction_step(model, inputs, *args, **options)


def accuracy(predicted: EvalPrediction) -> dict[str, float]:
    """The share of right answers, and the number of rows that have a label."""
    labels = np.asarray(predicted.label_ids)
    has_label = np.not_equal(labels, IGNORED)
    right = np.equal(np.argmax(predicted.predictions, axis=-1), labels)[has_label]
    return {"accuracy": float(right.mean()), "rows": int(has_label.sum())}


def main() -> None:
    """Trains up to the last epoch, or up to the step where it is to stop."""
    args = arguments(__doc__)
    torch.set_num_threads(1)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    settings = TrainingArguments(
        output_dir=str(args.checkpoint),
        num_train_epochs=args.epochs,
        per_device_train_batch_size=-(-args.global_batch_size // world_size),
        eval_strategy="epoch",
        save_strategy="no",
        learning_rate=2e-3,
        ignore_data_skip=True,
        use_cpu=True,
        ddp_backend="gloo" if world_size > 1 else None,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1000,
    )
    # The settings have started the process group, so that the loaders know their ranks.
    train, test = loaders(args, valid_key="valid", transform=with_ignored_padding, last_batch="pad")
    last: str | None = get_last_checkpoint(str(args.checkpoint)) if args.checkpoint.exists() else None
    if last is not None:
        train.load_state_dict((Path(last) / "loader.json").read_text(encoding="utf-8"))
    model = DigitsModel(num_channels(args))
    data = {"train_dataset": train, "eval_dataset": test}
    trainer = DigitsTrainer(args, model=model, args=settings, compute_metrics=accuracy, **data)
    trainer.train(resume_from_checkpoint=last)
    leave()


if __name__ == "__main__":
    main()
