"""The examples for Lightning, Transformers, Accelerate and FSDP2, with real trainers and processes: each row once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Server

import stoker

pytest.importorskip("torch")

CLIENT = Path(__file__).parent.parent
NUM_TRAIN, NUM_TEST = 203, 41
GLOBAL_BATCH = 16
NUM_STEPS = -(-NUM_TRAIN // GLOBAL_BATCH)
TRAINERS = ["lightning", "transformers", "accelerate", "fsdp2"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a lake with a table `digits` like that of the demo: images of 8 by 8 pixels, labels, splits."""
    path = str(tmp_path_factory.mktemp("lake"))
    rng = np.random.default_rng(0)
    num_rows = NUM_TRAIN + NUM_TEST
    columns = {
        "image": rng.integers(0, 255, (num_rows, 1, 8, 8), dtype=np.uint8),
        "label": rng.integers(0, 10, num_rows).astype(np.int32),
        "split": ["train"] * NUM_TRAIN + ["test"] * NUM_TEST,
    }
    stoker.connect(path).create_table("digits", columns)
    return path


@pytest.fixture(scope="module")
def server(digits: str) -> Iterator[Server]:
    """A server over that lake, through which runs resume that were stopped in process."""
    running = Server(digits)
    yield running
    running.stop()


def train(trainer: str, num_processes: int, lake: str, folder: Path, *options: str) -> str:
    """Runs an example to its end, in one process or under torchrun; returns what it printed."""
    launcher = [sys.executable]
    if num_processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    checkpoint = folder / ("digits.ckpt" if trainer == "lightning" else "checkpoint")
    script = str(CLIENT / "examples" / f"train_{trainer}.py")
    job = ["--lake", lake, "--checkpoint", str(checkpoint), "--global-batch-size", str(GLOBAL_BATCH), *options]
    removed = {"RANK", "WORLD_SIZE", "LOCAL_RANK"}
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    # HF_HUB_OFFLINE keeps the libraries from making requests to the Hugging Face Hub.
    environment |= {"PYTHONPATH": str(CLIENT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "USE_TF": "0"}
    done = subprocess.run([*launcher, script, *job], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def lines_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(folder.glob("rank*.jsonl")) for line in file.read_text().splitlines()]


def counted(lines: list[dict[str, object]], phase: str, epoch: str) -> dict[int, Counter[int]]:
    """Returns how often each row came in each epoch. `epoch` is the key of the batch's or of the trainer's epoch."""
    seen: dict[int, Counter[int]] = {}
    for line in lines:
        if line["phase"] == phase:
            seen.setdefault(line[epoch], Counter()).update(line["rows"])
    return seen


def is_whole(rows: Counter[int], num_rows: int) -> bool:
    return len(rows) == num_rows == rows.total()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_row_is_counted_through_a_stop_and_a_resume(
    trainer: str, before: int, after: int, digits: str, server: Server, tmp_path: Path
) -> None:
    stop = NUM_STEPS // 2
    train(trainer, before, digits, tmp_path, "--stop-after-steps", str(stop), "--ledger", str(tmp_path / "first"))
    first = lines_of(tmp_path / "first")
    assert len({line["epoch"] for line in first if line["phase"] == "train"}) == 1
    assert sum(len(line["rows"]) for line in first if line["phase"] == "train") == stop * GLOBAL_BATCH
    said = train(trainer, after, server.url, tmp_path, "--ledger", str(tmp_path / "second"))
    second = lines_of(tmp_path / "second")
    for count in ("epoch", "loop_epoch"):
        rows = counted([*first, *second], "train", count)
        assert sorted(rows) == [0, 1]
        assert all(is_whole(seen, NUM_TRAIN) for seen in rows.values()), {e: len(r) for e, r in rows.items()}
    validated = counted(second, "test", "loop_epoch")
    assert len(validated) == 2, "a validation after each epoch"
    assert all(is_whole(seen, NUM_TEST) for seen in validated.values())
    assert str(NUM_TEST) in said


def test_lightning_stops_with_the_last_batch_of_an_epoch(digits: str, tmp_path: Path) -> None:
    stop = str(NUM_STEPS)
    train("lightning", 1, digits, tmp_path, "--stop-after-steps", stop, "--ledger", str(tmp_path / "first"))
    train("lightning", 1, digits, tmp_path, "--ledger", str(tmp_path / "second"))
    rows = counted([*lines_of(tmp_path / "first"), *lines_of(tmp_path / "second")], "train", "epoch")
    assert sorted(rows) == [0, 1]
    assert all(is_whole(seen, NUM_TRAIN) for seen in rows.values())


def test_receipts_of_fsdp2_prove_each_row_once(digits: str, tmp_path: Path) -> None:
    train("fsdp2", 2, digits, tmp_path, "--epochs", "1", "--receipts", str(tmp_path / "receipts"))
    receipts = [json.loads(file.read_text()) for file in sorted((tmp_path / "receipts").iterdir())]
    assert len(receipts) == 2
    (verdict,) = stoker.connect(digits).verify(receipts)
    assert verdict.is_exactly_once
    (verdict,) = stoker.connect(digits).verify(receipts[:1])
    assert not verdict.is_exactly_once


def test_a_data_module_names_what_it_lacks(digits: str) -> None:
    data = stoker.connect(digits).sql("SELECT label FROM digits").lightning(batch_size=4)
    with pytest.raises(stoker.InvalidRequestError, match="no loaders yet"):
        data.train_dataloader()
    data.setup("fit")
    assert not data.loaders.keys() - {"train"}
    assert sum(batch.num_valid for batch in data.train_dataloader()) == NUM_TRAIN + NUM_TEST
    data.setup("test")
    with pytest.raises(stoker.InvalidRequestError, match=r"no source for test: give query.lightning\(test=…\)"):
        data.test_dataloader()


def test_accelerate_does_not_shard_a_second_time(digits: str, tmp_path: Path) -> None:
    code = """
    import sys
    import torch
    from accelerate import Accelerator
    from accelerate.data_loader import prepare_data_loader
    import stoker

    accelerator = Accelerator(cpu=True)
    query = stoker.connect(sys.argv[1]).sql("SELECT label FROM digits")
    for dispatch in (True, False):
        wrapped = torch.utils.data.DataLoader(query.torch(batch_size=8), batch_size=None)
        prepared = prepare_data_loader(wrapped, dispatch_batches=dispatch, put_on_device=True)
        try:
            rows = sum(len(batch["label"]) for batch in prepared)
            print(f"dispatch {dispatch}: {rows} rows", flush=True)
        except stoker.InvalidRequestError as refused:
            print(f"dispatch {dispatch}: refused {refused}", flush=True)
        except Exception as failed:
            print(f"dispatch {dispatch}: {failed}", flush=True)
        accelerator.wait_for_everyone()
    loader = accelerator.prepare(query.torch(batch_size=8))
    rows = accelerator.reduce(torch.tensor(sum(batch.num_valid for batch in loader)))
    print(f"the loader itself: {int(rows)} rows", flush=True)
    accelerator.end_training()
    """
    script = tmp_path / "twice.py"
    script.write_text(textwrap.dedent(code))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(CLIENT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, str(script), digits], env=environment, capture_output=True, text=True, timeout=200
    )
    assert "the loader itself: 244 rows" in done.stdout, done.stdout + done.stderr[-3000:]
    assert "sharded already" in done.stdout, done.stdout
