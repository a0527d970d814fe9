"""Trains on the table `digits` with Keras, and continues in the middle of an epoch.

    python train_tensorflow.py --lake lake --checkpoint checkpoint

The dataset has the batches and the order of the stream, so that it needs neither `batch` nor `shuffle`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import tensorflow as tf

import stoker

TRAIN = "SELECT image, label FROM digits WHERE split = 'train'"
TEST = "SELECT image, label FROM digits WHERE split = 'test'"


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", required=True, help="a lake or a server that stoker.connect understands")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder where weights and state are kept")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--stop-after-steps", type=int, help="save a checkpoint after so many steps, and stop")
    return parser.parse_args()


def pairs(batch: dict[str, Any]) -> tuple[Any, Any]:
    """Returns what Keras takes: images as numbers from 0 to 1, and labels."""
    return tf.cast(batch["image"], tf.float32) / 255.0, batch["label"]


def main() -> None:
    """Trains up to the last epoch, or up to the step where it is to stop."""
    args = arguments()
    lake = stoker.connect(args.lake)
    train = lake.sql(TRAIN).tensorflow(batch_size=args.batch_size, seed=7)
    test = lake.sql(TEST).tensorflow(batch_size=args.batch_size, shuffle=False, evaluation=True)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input(train.element_spec["image"].shape[1:]),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    weights, state = args.checkpoint / "model.weights.h5", args.checkpoint / "loader.json"
    if state.exists():
        model.load_weights(weights)
        train.stoker.load_state_dict(state.read_text(encoding="utf-8"))
    while train.stoker.epoch < args.epochs:
        epoch = train.stoker.epoch
        for images, labels in train.map(pairs):
            model.train_on_batch(images, labels)
            if train.stoker.step == args.stop_after_steps:
                break
        stops = train.stoker.step == args.stop_after_steps
        if not stops:
            accuracy = model.evaluate(test.map(pairs), verbose=0)[1]
            print(f"epoch {epoch}: accuracy {accuracy:.4f} on {test.stoker.num_rows} rows", flush=True)
        if stops or train.stoker.epoch == args.epochs:
            args.checkpoint.mkdir(parents=True, exist_ok=True)
            model.save_weights(weights)
            state.write_text(json.dumps(train.stoker.state_dict()), encoding="utf-8")
            return


if __name__ == "__main__":
    main()
