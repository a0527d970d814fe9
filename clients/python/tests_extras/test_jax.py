"""Streams as JAX arrays: on one device, over the devices of a process, and over processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from conftest import NUM_ROWS, tokens
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import stoker

QUERY = "SELECT id, image, emb, flag, score, tokens, name, at FROM t"
NUMBERS = "SELECT id, image, emb, flag FROM t"

#: A tokenizer of digits and letters.
WORDS = """{"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "1": 1, "2": 2}},
    "pre_tokenizer": {"type": "Digits", "individual_digits": true}, "added_tokens": [], "version": "1.0"}"""


def test_arrays_have_the_values_of_the_stream(lake: stoker.Lake) -> None:
    loader = lake.sql(QUERY).jax(batch_size=8, seed=3, null_masks=["score"], valid_key="valid")
    stream = lake.sql(QUERY).stream(batch_size=8, seed=3, last_batch="pad")
    count = 0
    for batch, expected in zip(loader, stream, strict=True):
        assert (batch.cursor, batch.step, batch.num_valid) == (expected.cursor, expected.step, expected.num_valid)
        for name in ("id", "image", "emb", "flag", "score"):
            assert isinstance(batch[name], jax.Array)
            assert batch[name].dtype == expected[name].dtype
            np.testing.assert_array_equal(batch[name], expected[name])
        assert batch["image"].shape == (8, 3, 4, 4)
        np.testing.assert_array_equal(batch["score_valid"], expected.is_valid("score"))
        np.testing.assert_array_equal(batch["valid"], expected.valid)
        lengths = [len(tokens(row)) for row in expected["id"].tolist()]
        assert batch["tokens"].shape == (8, max(lengths))
        for row, length in enumerate(lengths):
            assert batch["tokens"][row, :length].tolist() == tokens(int(expected["id"][row]))
        assert batch["name"].tolist() == expected["name"].tolist()
        assert batch["at"].dtype == "datetime64[s]"
        count += batch.num_valid
    assert count == NUM_ROWS
    assert loader.receipt() == stream.receipt()


def test_a_transform_of_rows_gets_numpy_arrays(lake: stoker.Lake) -> None:
    def transform(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        assert isinstance(row["emb"], np.ndarray)
        return {"x": row["emb"] * 2, "noise": rng.random(3, np.float32), "id": row["id"]}

    options: dict[str, Any] = {"batch_size": 8, "seed": 3, "transform": stoker.PerRow(transform, seeded=True)}
    expected = lake.sql(NUMBERS).numpy(last_batch="pad", **options)
    for batch, other in zip(lake.sql(NUMBERS).jax(**options), expected, strict=True):
        assert batch["x"].shape == (8, 8)
        for name in ("x", "noise", "id"):
            assert isinstance(batch[name], jax.Array)
            np.testing.assert_array_equal(batch[name], other[name])


def test_token_ids_are_arrays(lake: stoker.Lake) -> None:
    decode = {"name": stoker.Tokenizer(WORDS, length=3, pad=0)}
    for batch in lake.sql("SELECT id, name FROM t").jax(batch_size=8, decode=decode):
        assert isinstance(batch["name"], jax.Array)
        assert batch["name"].shape == batch["name_mask"].shape == (8, 3)
    decode = {"name": stoker.Tokenizer(WORDS)}
    batch = next(iter(lake.sql("SELECT id, name FROM t").jax(batch_size=8, decode=decode)))
    assert isinstance(batch["name"], jax.Array)
    assert batch["name"].shape[0] == 8


def test_the_last_batch_is_padded_on_one_process(lake: stoker.Lake) -> None:
    batches = list(lake.sql(NUMBERS).jax(batch_size=16))
    assert [len(batch["id"]) for batch in batches] == [16, 16, 16, 16]
    assert [batch.num_valid for batch in batches] == [16, 16, 16, 2]
    assert batches[-1].valid.tolist() == [True] * 2 + [False] * 14


def test_a_batch_goes_through_jit(lake: stoker.Lake) -> None:
    step = jax.jit(lambda batch: batch["emb"].sum(axis=1) + batch["id"])
    for batch in lake.sql(NUMBERS).jax(batch_size=10, shuffle=False):
        expected = np.asarray(batch["emb"]).sum(axis=1) + np.asarray(batch["id"])
        np.testing.assert_allclose(step(batch), expected)
    doubled = jax.tree_util.tree_map(lambda leaf: leaf * 2, batch)
    assert sorted(doubled) == ["emb", "flag", "id", "image"]
    np.testing.assert_array_equal(doubled["id"], np.asarray(batch["id"]) * 2)


def test_a_sharding_makes_one_array_over_all_devices(lake: stoker.Lake) -> None:
    assert jax.device_count() == 4
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
    sharding = NamedSharding(mesh, PartitionSpec("data", None))
    rows: list[int] = []
    for batch in lake.sql(NUMBERS).jax(batch_size=10, seed=1, sharding=sharding):
        assert batch["image"].sharding.is_equivalent_to(sharding, 4)
        assert {shard.data.shape[0] for shard in batch["id"].addressable_shards} == {5}
        rows += np.asarray(batch["id"])[batch.valid].tolist()
    assert sorted(rows) == list(range(NUM_ROWS))


def test_a_sharding_that_does_not_fit_is_refused(lake: stoker.Lake) -> None:
    mesh = Mesh(np.array(jax.devices()), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    with pytest.raises(stoker.InvalidRequestError, match="batches of one size"):
        lake.sql(NUMBERS).jax(batch_size=8, sharding=sharding, last_batch="uneven")
    with pytest.raises(stoker.InvalidRequestError, match="sharding is str"):
        lake.sql(NUMBERS).jax(batch_size=8, sharding="data")
    with pytest.raises(stoker.InvalidRequestError, match="9 rows of a batch do not divide among the devices"):
        lake.sql(NUMBERS).jax(batch_size=9, sharding=sharding)
    with pytest.raises(stoker.InvalidRequestError, match="the stream is for rank 1 of 2, but the devices"):
        lake.sql(NUMBERS).jax(batch_size=8, sharding=sharding, rank=1, world_size=2)


def test_integers_that_do_not_fit_are_errors(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", {"small": [1, 2], "large": [1, 2**40]})
    (batch,) = lake.sql("SELECT small FROM t").jax(batch_size=2, shuffle=False)
    assert batch["small"].dtype == np.int32
    assert batch["small"].tolist() == [1, 2]
    with pytest.raises(stoker.InvalidRequestError, match=r"column large has int64 numbers .*jax_enable_x64"):
        next(iter(lake.sql("SELECT large FROM t").jax(batch_size=2)))


def test_a_loader_resumes(lake: stoker.Lake) -> None:
    loader = lake.sql(NUMBERS).jax(batch_size=8, seed=5)
    rows: list[int] = []
    for batch in loader:
        rows += np.asarray(batch["id"])[batch.valid].tolist()
        if batch.step == 2:
            break
    again = lake.sql(NUMBERS).jax(batch_size=8, seed=5)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    for batch in again:
        rows += np.asarray(batch["id"])[batch.valid].tolist()
    assert sorted(rows) == list(range(NUM_ROWS))


def test_padded_rows_of_one_length_compile_once(lake: stoker.Lake) -> None:
    traced = []

    @jax.jit
    def step(batch: dict[str, jax.Array]) -> jax.Array:
        traced.append(1)
        return batch["tokens"].sum() + batch["mask"].sum()

    loader = lake.sql("SELECT tokens FROM t").jax(batch_size=9, ragged=stoker.Pad(length=8, mask="mask"))
    total = sum(int(step(dict(batch))) for batch in loader)
    assert len(traced) == 1
    assert total > 0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


JOB = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
target, coordinator, index, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
jax.distributed.initialize(coordinator, num_processes=2, process_id=index)
import stoker
mesh = Mesh(np.array(jax.devices()), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
query = stoker.connect(target).sql("SELECT id, emb FROM t")
try:
    loader = query.jax(global_batch_size=8, seed=index if kind == "differing" else 0, sharding=sharding)
except stoker.StokerError as refused:
    print(json.dumps({"refused": str(refused)}))
    sys.exit()
total = jax.jit(lambda batch: batch["id"].sum())
sums, rows = [], []
for batch in loader:
    assert batch["id"].shape == (8,) and len(batch.valid) == 4
    local = np.concatenate([np.asarray(shard.data) for shard in batch["id"].addressable_shards])
    rows += local[batch.valid].tolist()
    sums.append(int(total(dict(batch))))
print(json.dumps({"rank": loader.stream.rank, "rows": rows, "sums": sums, "receipt": loader.receipt()}))
"""


def run_job(target: str, client: str, kind: str) -> list[dict[str, Any]]:
    coordinator = f"127.0.0.1:{free_port()}"
    environment = {"PYTHONPATH": client, "JAX_PLATFORMS": "cpu", "PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    command = [sys.executable, "-c", JOB, target, coordinator]
    jobs = [
        subprocess.Popen(
            [*command, str(index), kind], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for index in range(2)
    ]
    outputs = [job.communicate(timeout=240) for job in jobs]
    assert all(job.returncode == 0 for job in jobs), [errors[-3000:] for _, errors in outputs]
    return [json.loads(said.strip().splitlines()[-1]) for said, _ in outputs]


def test_each_process_reads_its_part(lake: stoker.Lake, client: str) -> None:
    first, second = run_job(lake.target, client, "equal")
    assert (first["rank"], second["rank"]) == (0, 1)
    assert sorted(first["rows"] + second["rows"]) == list(range(NUM_ROWS))
    assert first["sums"] == second["sums"]
    (verdict,) = lake.verify([first["receipt"], second["receipt"]])
    assert verdict.is_exactly_once


def test_processes_that_ask_for_different_streams_are_all_refused(lake_path: str, client: str) -> None:
    first, second = run_job(lake_path, client, "differing")
    assert first["refused"] == "process 1 of the JAX job got no stream; its own error has the reason"
    assert "seed: rank 0 has 0, rank 1 has 1" in second["refused"]
