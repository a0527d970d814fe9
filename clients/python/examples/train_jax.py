"""Trains on the table `digits` with JAX, over all devices of all processes, and continues in the middle of an epoch.

    python train_jax.py --lake lake --checkpoint digits.npz
    python train_jax.py --lake lake --checkpoint digits.npz --coordinator localhost:1234 --process 0 --num-processes 2

Each array of a batch is one array over all devices, and each process reads the rows of its own devices.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import stoker

TRAIN = "SELECT image, label FROM digits WHERE split = 'train'"
TEST = "SELECT image, label FROM digits WHERE split = 'test'"


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", required=True, help="a lake or a server that stoker.connect understands")
    parser.add_argument("--checkpoint", type=Path, required=True, help="where the job's state is kept")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--global-batch-size", type=int, default=48, help="rows of a step, over all processes")
    parser.add_argument("--stop-after-steps", type=int, help="save a checkpoint after so many steps, and stop")
    parser.add_argument("--receipts", type=Path, help="folder for the receipt of each process")
    parser.add_argument("--coordinator", help="host and port of process 0, for several processes")
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--num-processes", type=int, default=1)
    return parser.parse_args()


def initial(num_values: int) -> dict[str, jax.Array]:
    """Returns the weights of a network with one hidden layer."""
    first, second = jax.random.split(jax.random.key(0))
    return {
        "w1": jax.random.normal(first, (num_values, 64)) / num_values**0.5,
        "b1": jnp.zeros(64),
        "w2": jax.random.normal(second, (64, 10)) / 8.0,
        "b2": jnp.zeros(10),
    }


def logits(weights: dict[str, jax.Array], image: jax.Array) -> jax.Array:
    """Gives logits of shape (rows, 10) for images of shape (rows, channels, 8, 8), whose pixels are 0 to 255."""
    values = image.reshape(image.shape[0], -1) / 255.0
    return jax.nn.relu(values @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]


def loss(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """Returns the mean loss over the rows that are not padding."""
    likely = jax.nn.log_softmax(logits(weights, batch["image"]))
    losses = -(likely * jax.nn.one_hot(batch["label"], 10)).sum(axis=1)
    return (losses * batch["valid"]).sum() / batch["valid"].sum()


def stepped(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the weights after one step."""
    slopes = jax.grad(loss)(weights, batch)
    return {name: weight - 0.1 * slopes[name] for name, weight in weights.items()}


def counted(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """Returns the numbers of right answers and of rows."""
    answers = logits(weights, batch["image"]).argmax(axis=1) == batch["label"]
    return jnp.stack([(answers & batch["valid"]).sum(), batch["valid"].sum()])


step, right = jax.jit(stepped), jax.jit(counted)


def save(args: argparse.Namespace, weights: dict[str, jax.Array], train: Any) -> None:
    """Saves the weights and the loader's state, which are the same on all processes, and the receipt of each."""
    if jax.process_index() == 0:
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in weights.items()}
        with args.checkpoint.open("wb") as file:
            np.savez(file, loader=json.dumps(train.state_dict()), **arrays)
    if args.receipts is not None:
        args.receipts.mkdir(parents=True, exist_ok=True)
        text = json.dumps(train.receipt())
        (args.receipts / f"process{jax.process_index()}.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Trains up to the last epoch, or up to the step where it is to stop."""
    args = arguments()
    if args.coordinator is not None:
        jax.distributed.initialize(args.coordinator, num_processes=args.num_processes, process_id=args.process)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    options: dict[str, Any] = {
        "global_batch_size": args.global_batch_size,
        "sharding": NamedSharding(mesh, PartitionSpec("data")),
        "valid_key": "valid",
    }
    lake = stoker.connect(args.lake)
    train = lake.sql(TRAIN).jax(seed=7, **options)
    test = lake.sql(TEST).jax(shuffle=False, evaluation=True, **options)
    weights = initial(int(np.prod(stoker.tensor_shape(train.stream.schema.field("image")))))
    if args.checkpoint.exists():
        with np.load(args.checkpoint) as saved:
            weights = {name: jnp.asarray(saved[name]) for name in weights}
            train.load_state_dict(str(saved["loader"]))
    while train.epoch < args.epochs:
        epoch = train.epoch
        for batch in train:
            weights = step(weights, dict(batch))
            if batch.step + 1 == args.stop_after_steps:
                save(args, weights, train)
                return
        totals = np.zeros(2)
        for batch in test:
            totals += np.asarray(right(weights, dict(batch)))
        print(f"epoch {epoch}: accuracy {totals[0] / totals[1]:.4f} on {int(totals[1])} rows", flush=True)
    save(args, weights, train)


if __name__ == "__main__":
    main()
