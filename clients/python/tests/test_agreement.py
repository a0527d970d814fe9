"""All ranks of a job get the same stream, by process groups, meshes or torchrun's store, or else an error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
from conftest import make_columns

import stoker

pytest.importorskip("torch")

CLIENT = str(Path(__file__).parent.parent)
TESTS = str(Path(__file__).parent)


def torchrun(num_processes: int, folder: Path, code: str, *args: str) -> list[object]:
    """Runs code in processes of torchrun; returns the value that each rank printed as JSON, in the order of ranks."""
    script = folder / "job.py"
    script.write_text(textwrap.dedent(code))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    environment = {**os.environ, "PYTHONPATH": f"{CLIENT}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, str(script), *args], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if re.match(r"\[\d", line)]
    assert len(found) == num_processes, done.stdout + done.stderr
    return [value for _, value in sorted(found)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": 2}, "seed: rank 0 has 1, rank 1 has 2"),
        ({"shuffle": False}, "shuffle: rank 0 has 'block', rank 1 has 'sequential'"),
        ({"batch_size": 5}, "batch_size: rank 0 has 4, rank 1 has 5"),
        ({"sql": "SELECT id FROM t WHERE id > 3"}, "query: rank 0 has"),
        ({"params": [7]}, "params: rank 0 has"),
    ],
)
def test_ranks_that_ask_for_something_else_are_refused(tmp_path: Path, options: dict[str, object], said: str) -> None:
    stoker.connect(str(tmp_path / "lake")).create_table("t", make_columns(30))
    code = """
    import json, sys
    import torch.distributed as dist
    import stoker

    dist.init_process_group("gloo")
    asked = {"sql": "SELECT id FROM t WHERE id >= $1", "params": [0], "seed": 1, "batch_size": 4, "shuffle": "block"}
    if dist.get_rank() == 1:
        asked |= json.loads(sys.argv[2])
    query = stoker.connect(sys.argv[1]).sql(asked.pop("sql"), params=asked.pop("params"))
    try:
        query.stream(**asked)
        outcome = "no error"
    except stoker.StateMismatchError as refused:
        outcome = str(refused)
    sys.stdout.write(json.dumps([dist.get_rank(), outcome]) + "\\n")
    dist.destroy_process_group()
    """
    if "sql" in options:
        options = {**options, "params": []}
    outcomes = torchrun(2, tmp_path, code, str(tmp_path / "lake"), json.dumps(options))
    for outcome in outcomes:
        assert said in outcome


def test_ranks_of_torchrun_agree_before_they_have_a_process_group(tmp_path: Path) -> None:
    stoker.connect(str(tmp_path / "lake")).create_table("t", make_columns(30))
    code = """
    import json, os, sys, warnings
    import stoker
    from conftest import make_columns
    from torch.distributed import TCPStore

    warnings.simplefilter("error")
    rank = int(os.environ["RANK"])
    lake = stoker.connect(sys.argv[1])
    query = lake.sql("SELECT id FROM t")
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, False)
    found = []
    for turn in range(2):
        if rank == 1:  # someone writes between the ranks' calls
            store.wait([f"planned {turn}"])
            lake.table("t").append(make_columns(5, start=30 + 5 * turn))
        stream = query.stream(batch_size=4, seed=turn)
        if rank == 0:
            store.set(f"planned {turn}", "")
        rows = [row for batch in stream for row in batch["id"][batch.valid].tolist()]
        found.append([stream.stream_id, stream.snapshots[0][1], rows])
        store.set(f"read {turn} {rank}", "")
        store.wait([f"read {turn} 0", f"read {turn} 1"])
    try:
        query.stream(batch_size=4 + rank)
        refused = ""
    except stoker.StateMismatchError as error:
        refused = str(error)
    sys.stdout.write(json.dumps([rank, [found, refused]]) + "\\n")
    """
    (first, told), (second, refused) = torchrun(2, tmp_path, code, str(tmp_path / "lake"))
    for one, other in zip(first, second, strict=True):
        assert one[:2] == other[:2]
        assert sorted(one[2] + other[2]) == list(range(len(one[2] + other[2])))
    assert [len(one[2] + other[2]) for one, other in zip(first, second, strict=True)] == [30, 35]
    assert (told, "batch_size: rank 0 has 4, rank 1 has 5" in refused) == ("", True)


def test_ranks_of_the_environment_alone_are_warned(lake: stoker.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="may read different snapshots"):
        lake.sql("SELECT id FROM samples").stream(batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lake.sql("SELECT id FROM samples").stream(batch_size=4, run_id="agreed-by-name")
        lake.sql("SELECT id FROM samples").stream(batch_size=4, rank=1, world_size=2)


def test_ranks_of_one_tensor_parallel_group_get_the_same_rows(tmp_path: Path) -> None:
    stoker.connect(str(tmp_path / "lake")).create_table("t", make_columns(30))
    code = """
    import json, sys
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    import stoker

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    query = stoker.connect(sys.argv[1]).sql("SELECT id FROM t")
    by_mesh = query.stream(batch_size=4, mesh=mesh["dp"])
    by_group = query.stream(batch_size=4, process_group=mesh.get_group("dp"))
    streams = [by_mesh, by_group]
    found = [[row for batch in stream for row in batch["id"][batch.valid].tolist()] for stream in streams]
    refused = []
    for wrong in ({"mesh": mesh}, {"mesh": mesh["dp"], "rank": 0, "world_size": 2}, {"mesh": 3}, {"process_group": 3}):
        try:
            query.stream(batch_size=4, **wrong)
        except stoker.InvalidRequestError as error:
            refused.append(str(error))
    state = by_mesh.state_dict()
    resumed = stoker.connect(sys.argv[1]).resume(state, batch_size=4, mesh=mesh["dp"])
    place = [by_mesh.rank, by_mesh.world_size, resumed.rank, resumed.epoch]
    sys.stdout.write(json.dumps([dist.get_rank(), [place, found, refused]]) + "\\n")
    dist.destroy_process_group()
    """
    ranks = torchrun(4, tmp_path, code, str(tmp_path / "lake"))
    assert [place for place, _, _ in ranks] == [[0, 2, 0, 1], [0, 2, 0, 1], [1, 2, 1, 1], [1, 2, 1, 1]]
    rows = [found for _, found, _ in ranks]
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]
    for turn in range(2):
        assert sorted(rows[0][turn] + rows[2][turn]) == list(range(30))
    for _, _, refused in ranks:
        assert len(refused) == 4
        assert "mesh['dp']" in refused[0]
        assert "give one of" in refused[1]


def test_a_resume_with_different_states_is_refused(tmp_path: Path) -> None:
    stoker.connect(str(tmp_path / "lake")).create_table("t", make_columns(30))
    code = """
    import json, sys
    import torch.distributed as dist
    import stoker

    dist.init_process_group("gloo")
    lake = stoker.connect(sys.argv[1])
    stream = lake.sql("SELECT id FROM t").stream(batch_size=4, rank=0, world_size=1)
    for _ in range(1 + dist.get_rank()):
        next(iter(stream))
    try:
        lake.resume(stream.state_dict(), batch_size=4)
        outcome = "no error"
    except stoker.StateMismatchError as refused:
        outcome = str(refused)
    sys.stdout.write(json.dumps([dist.get_rank(), outcome]) + "\\n")
    dist.destroy_process_group()
    """
    for outcome in torchrun(2, tmp_path, code, str(tmp_path / "lake")):
        assert "state: rank 0 has" in outcome
