"""`stoker cleanup` removes old versions and files that nothing refers to, and keeps all that may still be needed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_columns
from lance_files import written_earlier
from s3_store import BUCKET, Store

import stoker

DAY = 24 * 3600
QUERY = "SELECT id, image FROM samples"


def command(*arguments: str, root: str) -> list[str]:
    return [os.environ["STOKER_BIN"], "cleanup", *arguments, "--lake", root]


def cleanup(root: str | Path, *arguments: str, **environment: str) -> str:
    """Runs a cleanup that must succeed; returns its output."""
    done = subprocess.run(
        command(*arguments, root=str(root)),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(root: Path, *arguments: str) -> str:
    """Runs a cleanup that must fail; returns its error output."""
    done = subprocess.run(command(*arguments, root=str(root)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout
    return done.stderr


def files(root: Path) -> set[str]:
    """Returns the paths of all files of a lake, except the locks of cleanups and the probes of what a store can do."""
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(("_stoker/cleanup/", "_stoker/probes/"))}


def let_pass(root: Path, days: float) -> None:
    """Makes all files, manifests and holds of a lake older by this many days."""
    secs = round(days * DAY)
    for path in list(root.rglob("_refs/tags/stoker.until.*.json")):
        date, version = path.name.removeprefix("stoker.until.").split(".", 1)
        earlier = datetime.fromisoformat(date) - timedelta(days=int(days))
        path.rename(path.with_name(f"stoker.until.{earlier:%Y-%m-%d}.{version}"))
    for path in [path for path in root.rglob("*") if path.is_file()]:
        found = path.stat()
        if path.suffix == ".manifest":
            path.write_bytes(written_earlier(path.read_bytes(), secs))
        os.utime(path, (found.st_atime - secs, found.st_mtime - secs))


def ids(lake: stoker.Lake, at: str = "") -> list[int]:
    """Streams a snapshot; returns the ids of its rows, ascending."""
    found = []
    for batch in lake.sql(f"{QUERY} {at}").stream(batch_size=16, last_batch="uneven"):
        found += [int(row) for row in batch["id"]]
    return sorted(found)


def versions(lake: stoker.Lake) -> list[int]:
    return [version.version for version in lake.table("samples").versions()]


def named_files(root: Path) -> set[str]:
    """Returns the data files that the versions of the table refer to, by Lance's own reader."""
    newest = lance.dataset(f"{root}/samples.lance")
    return {
        f"samples.lance/data/{file.path}"
        for version in newest.versions()
        for fragment in newest.checkout_version(version["version"]).get_fragments()
        for file in fragment.data_files()
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake with versions 1 to 5. Versions 1 (tag "gold"), 2 and 3 were replaced by newer ones 40 days ago."""
    root = tmp_path / "lake"
    lake = stoker.connect(str(root))
    lake.create_table("samples", make_columns(60), rows_per_fragment=16).tag("gold")
    lake.table("samples").append(make_columns(20, start=60))
    lake.create_table("samples", make_columns(30, start=100), mode="overwrite")
    lake.create_table("samples", make_columns(40, start=200), mode="overwrite", rows_per_fragment=16)
    let_pass(root, 40)
    stoker.connect(str(root)).table("samples").append(make_columns(10, start=240))
    return root


def test_old_versions_go_and_tagged_ones_stay(root: Path) -> None:
    lake = stoker.connect(str(root))
    wanted = {at: ids(lake, at) for at in ("AT (TAG => 'gold')", "AT (VERSION => 4)", "")}
    before = files(root)
    told = cleanup(root, "--dry-run")
    assert told.startswith("samples: would remove 2 versions, "), told
    assert "; 1 older version with a tag: 1 stays" in told
    assert files(root) == before

    removed = cleanup(root)
    assert removed.splitlines()[0] == told.splitlines()[0].replace("would remove", "removed")
    lake = stoker.connect(str(root))
    assert versions(lake) == [1, 4, 5]
    assert {at: ids(lake, at) for at in wanted} == wanted
    with pytest.raises(stoker.NotFoundError, match="a cleanup of old versions removed it"):
        lake.sql(f"{QUERY} AT (VERSION => 3)")
    stored = {name for name in files(root) if name.startswith("samples.lance/data/")}
    assert stored == named_files(root)
    assert len(stored) < len([name for name in before if name.startswith("samples.lance/data/")])
    assert cleanup(root).startswith("samples: removed 0 versions, 0 files (0.0 MiB)")
    # Commits are still possible.
    lake.table("samples").append(make_columns(5, start=250))
    assert ids(lake) == list(range(200, 255))


def test_nothing_goes_that_is_younger_than_a_day(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    for start in range(3):
        lake.create_table("samples", make_columns(10, start=start), mode="overwrite")
    let_pass(tmp_path, 0.9)
    done = subprocess.run(command("--keep", "0s", root=str(tmp_path)), capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("samples: removed 0 versions, 0 files")
    assert "keeping versions for 1day" in done.stderr
    assert versions(stoker.connect(str(tmp_path))) == [1, 2, 3]
    let_pass(tmp_path, 0.2)
    assert cleanup(tmp_path, "--keep", "1d").startswith("samples: removed 2 versions")
    assert versions(stoker.connect(str(tmp_path))) == [3]


def test_the_age_of_a_version_counts_from_the_next_one(tmp_path: Path) -> None:
    stoker.connect(str(tmp_path)).create_table("samples", make_columns(10))
    let_pass(tmp_path, 90)
    stoker.connect(str(tmp_path)).table("samples").append(make_columns(10, start=10))
    assert cleanup(tmp_path).startswith("samples: removed 0 versions")
    let_pass(tmp_path, 29)
    assert cleanup(tmp_path).startswith("samples: removed 0 versions")
    let_pass(tmp_path, 2)
    assert cleanup(tmp_path).startswith("samples: removed 1 version,")


def test_a_store_that_got_a_version_late_keeps_it(root: Path) -> None:
    manifests = sorted((root / "samples.lance/_versions").iterdir())
    for path in manifests:
        os.utime(path)  # The store's time is now, as if the clock of the writer were 40 days behind.
    assert cleanup(root).startswith("samples: removed 0 versions")


def test_indexes_and_excluded_rows_of_versions_that_stay(tmp_path: Path) -> None:
    root = tmp_path
    lake = stoker.connect(str(root))
    lake.create_table("samples", make_columns(200), rows_per_fragment=64)
    addresses = [address for batch in lake.sql(QUERY).stream(batch_size=50) for address in batch.row_ids.ravel()]
    for first in (0, 10):
        lake.table("samples").quarantine(np.array(addresses[first : first + 10]), "blurred")
        subprocess.run(
            [os.environ["STOKER_BIN"], "index", "samples", "id", "--kind", "btree", "--lake", str(root)], check=True
        )
    let_pass(root, 40)
    lake = stoker.connect(str(root))
    lake.table("samples").append(make_columns(5, start=200))
    query = "SELECT id FROM samples WHERE id BETWEEN 90 AND 110 ORDER BY id"
    wanted, found = ids(lake), lake.sql(query).to_arrow()
    assert re.match(r"samples: removed 4 versions, \d+ files", cleanup(root))
    lake = stoker.connect(str(root))
    assert versions(lake) == [5, 6]
    assert ids(lake) == wanted
    assert lake.sql(query).to_arrow() == found
    assert len(wanted) == 185


def test_files_of_given_up_writes_go_after_a_week(root: Path) -> None:
    data = root / "samples.lance" / "data"
    draft = data / "0f0e0d0c-0000-4000-8000-00000000000a.lance"
    draft.write_bytes(b"a part")
    cleanup(root)
    assert draft.exists()
    let_pass(root, 6)
    cleanup(root)
    assert draft.exists()
    let_pass(root, 2)
    cleanup(root)
    assert not draft.exists()
    assert ids(stoker.connect(str(root))) == list(range(200, 250))


def test_what_streams_of_removed_snapshots_left_goes_with_them(root: Path) -> None:
    lake = stoker.connect(str(root), hold_days=0)
    streams = {
        at: lake.sql(f"{QUERY} {at} ORDER BY id").stream(batch_size=8, run_id=f"run-{name}")
        for name, at in [("gold", "AT (TAG => 'gold')"), ("old", "AT (VERSION => 2)"), ("new", "")]
    }
    states = {at: json.dumps(stream.state_dict()) for at, stream in streams.items()}
    gold, old, new = (stream.stream_id for stream in streams.values())
    unnamed = lake.sql(f"{QUERY} AT (VERSION => 2)").stream(batch_size=8).stream_id
    kept = [name for name in files(root) if name.startswith("_stoker/rowsets/pages/")]
    assert len(kept) == 4
    # Specifications and row sets are too young to be removed.
    assert "removed 0 specifications, 0 objects of row sets" in cleanup(root, "samples")
    assert versions(lake) == [1, 4, 5]
    let_pass(root, 31)
    would = cleanup(root, "--dry-run").splitlines()[-1]
    assert re.match(r"streams and ingests: would remove 1 specification, 4 objects of row sets", would), would
    assert cleanup(root).splitlines()[-1] == would.replace("would remove", "removed")
    left = files(root)
    assert {f"_stoker/specs/{stream_id}" for stream_id in (gold, old, new)} <= left
    assert f"_stoker/specs/{unnamed}" not in left
    assert {f"_stoker/runs/run-{name}" for name in ("gold", "old", "new")} <= left
    lake = stoker.connect(str(root))
    for name, at, stream_id, num_rows in (("gold", "AT (TAG => 'gold')", gold, 60), ("new", "", new, 50)):
        resumed = lake.sql(f"{QUERY} {at} ORDER BY id").stream(batch_size=8, run_id=f"run-{name}")
        resumed.load_state_dict(json.loads(states[at]))
        assert resumed.stream_id == stream_id
        assert sum(batch.num_valid for batch in resumed) == num_rows
    for again in (
        lambda: lake.resume(json.loads(states["AT (VERSION => 2)"]), batch_size=8),
        lambda: lake.sql(f"{QUERY} ORDER BY id").stream(batch_size=8, run_id="run-old"),
    ):
        with pytest.raises(stoker.NotFoundError, match="snapshot samples@2 was removed by a cleanup of old versions"):
            again()


def test_row_sets_that_are_needed_anew_are_young(root: Path) -> None:
    query = f"{QUERY} ORDER BY id"
    stoker.connect(str(root)).sql(query).stream(batch_size=8, seed=1)
    let_pass(root, 40)
    for spec in (root / "_stoker" / "specs").iterdir():
        spec.unlink()
    stream = stoker.connect(str(root)).sql(query).stream(batch_size=8, seed=2)
    (root / "_stoker" / "specs" / stream.stream_id).unlink()  # As if the specification were stored a moment later.
    assert "removed 0 specifications, 0 objects of row sets" in cleanup(root)


def test_versions_of_branches_stay_with_their_streams(root: Path) -> None:
    stream_id = stoker.connect(str(root)).sql(f"{QUERY} AT (VERSION => 2)").stream(batch_size=8).stream_id
    lance.dataset(f"{root}/samples.lance").create_branch("mine", 2)
    let_pass(root, 40)
    assert "\nsamples: removed 2 versions" in cleanup(root)
    assert versions(stoker.connect(str(root))) == [1, 2, 5]
    assert f"_stoker/specs/{stream_id}" in files(root)


def test_ingests_go_on_after_a_cleanup(tmp_path: Path) -> None:
    root, source = tmp_path / "lake", tmp_path / "parquet"
    source.mkdir()

    def ingest(*arguments: str) -> str:
        place = ["ingest", "parquet", str(source), "samples", *arguments, "--lake", str(root), "--quiet"]
        done = subprocess.run([os.environ["STOKER_BIN"], *place], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def index(column: str) -> None:
        arguments = ["index", "samples", column, "--kind", "btree", "--lake", str(root)]
        subprocess.run([os.environ["STOKER_BIN"], *arguments], check=True, stdout=subprocess.DEVNULL)

    pq.write_table(pa.table({"id": range(10), "other": range(10)}), source / "a.parquet")
    ingest()
    pq.write_table(pa.table({"id": range(10, 20), "other": range(10)}), source / "b.parquet")
    ingest("--mode", "append")
    index("id")
    index("other")
    let_pass(root, 40)
    stoker.connect(str(root)).table("samples").append({"id": np.arange(90, 95), "other": np.arange(5)})
    assert cleanup(root).startswith("samples: removed 2 versions")
    pq.write_table(pa.table({"id": range(20, 30), "other": range(10)}), source / "c.parquet")
    ingest("--mode", "append")
    found = stoker.connect(str(root)).sql("SELECT id FROM samples ORDER BY id").to_arrow()["id"].to_pylist()
    assert found == [*range(30), *range(90, 95)]


def test_journals_of_given_up_ingests_go_and_their_marks_stay(root: Path) -> None:
    ingest = root / "_stoker" / "ingest"
    given_up, kept = ["aa/begun.json", "aa/000000.json"], ["bb/begun.json", "done/cc.json", "files/others/dd.json"]
    for name in given_up + kept:
        (ingest / name).parent.mkdir(parents=True, exist_ok=True)
        (ingest / name).write_text("{}")
    let_pass(root, 40)
    (ingest / "bb/000001.json").write_text("{}")  # This ingest is still running.
    assert cleanup(root, "--keep", "1d", "--dry-run").rstrip().endswith("1 journal")
    assert cleanup(root, "--keep", "1d").rstrip().endswith("1 journal")
    found = {str(path.relative_to(ingest)) for path in ingest.rglob("*.json")}
    assert found == {*kept, "bb/000001.json"}


def test_old_runs_are_forgotten_with_the_versions_that_only_they_hold(tmp_path: Path) -> None:
    """Versions 1 to 4 are held: 1 by an old run, 2 by an old run and a stream without one, 3 by a run that goes on."""
    root = tmp_path
    lake = stoker.connect(str(root), hold_days=3_000)
    for start in range(5):
        lake.create_table("samples", make_columns(20, start=start * 100), mode="overwrite")

    def stream(version: int, seed: int, run_id: str | None = None) -> stoker.Stream:
        query = lake.sql(f"{QUERY} AT (VERSION => {version})")
        logged = {} if run_id is None else {"run_id": run_id, "run_log": True}
        made = query.stream(batch_size=8, seed=seed, last_batch="uneven", **logged)
        assert sum(batch.num_valid for batch in made) == 20
        return made

    for version, seed, run_id in [(1, 1, "old-1"), (2, 2, "old-2"), (2, 3, None), (3, 4, "lasting"), (4, 5, "old-4")]:
        stream(version, seed, run_id)
    lake.execute("UPDATE stoker_run_log SET time = time - INTERVAL '100 days'")
    let_pass(root, 100)
    lake = stoker.connect(str(root), hold_days=3_000)
    stream(3, 6)  # Another stream renews the hold of version 3.
    lake.create_table("samples", make_columns(20, start=900), mode="overwrite")
    let_pass(root, 20)
    assert cleanup(root, "samples").startswith("samples: removed 0 versions")
    before = files(root)
    would = cleanup(root, "samples", "--forget-runs", "90d", "--dry-run").splitlines()
    assert would[0] == "runs: would forget 3 runs, which alone hold 2 versions"
    assert files(root) == before
    told = cleanup(root, "samples", "--forget-runs", "90d").splitlines()
    assert told[0] == "runs: forgot 3 runs, which alone held 2 versions"
    assert told[1].startswith("samples: removed 2 versions"), told
    lake = stoker.connect(str(root))
    assert versions(lake) == [2, 3, 5, 6]
    assert {name for name in files(root) if name.startswith("_stoker/runs/")} == {"_stoker/runs/lasting"}
    logged = lake.sql("SELECT DISTINCT run_id FROM stoker_run_log").to_arrow()["run_id"].to_pylist()
    assert logged == ["lasting"]
    assert [entry.event for entry in lake.run("lasting").entries()] != []
    assert cleanup(root, "samples", "--forget-runs", "90d").splitlines()[0] == (
        "runs: forgot 0 runs, which alone held 0 versions"
    )


def plant_lock(root: Path, number: int, until_secs: float) -> Path:
    path = root / "_stoker" / "cleanup" / f"{number:020}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"holder": "process 1", "until_secs": int(until_secs), "is_done": False}))
    return path


def test_one_cleanup_at_a_time(root: Path) -> None:
    lock = plant_lock(root, 7, time.time() + 600)
    said = refused(root)
    assert "another cleanup (process 1) runs, or was killed: try again in 15 minutes at most" in said
    assert f"delete _stoker/cleanup/{7:020} if it was killed" in said
    assert versions(stoker.connect(str(root))) == [1, 2, 3, 4, 5]
    assert "would remove 2 versions" in cleanup(root, "--dry-run")
    plant_lock(root, 7, time.time() - 600)
    assert "removed 2 versions" in cleanup(root)
    assert [path.name for path in lock.parent.iterdir()] == [f"{8:020}"]


def test_what_is_wrong_is_named(root: Path) -> None:
    assert "table nothing does not exist in" in refused(root, "nothing")
    assert "table name" in refused(root, "a/../b")
    plant_lock(root, 1, 0).write_text("{")
    assert "cannot parse _stoker/cleanup/00000000000000000001" in refused(root)
    served = subprocess.run(
        [os.environ["STOKER_BIN"], "cleanup", "--server", "grpc://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "`stoker cleanup` works on a lake, not through a server: give --lake" in served.stderr


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_cleanup_that_is_stopped_leaves_what_is_needed(tmp_path: Path, sent: signal.Signals) -> None:
    root = tmp_path
    lake = stoker.connect(str(root))
    for start in range(40):
        lake.create_table("samples", make_columns(10, start=start), mode="overwrite")
    let_pass(root, 40)
    stoker.connect(str(root)).table("samples").append(make_columns(10, start=49))
    manifests = root / "samples.lance" / "_versions"
    process = subprocess.Popen(
        command(root=str(root)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while process.poll() is None and len(list(manifests.glob("*.manifest"))) == 41:
        pass
    process.send_signal(sent)
    process.wait(timeout=60)
    assert len(list(manifests.glob("*.manifest"))) < 41
    assert ids(stoker.connect(str(root))) == list(range(39, 59))
    if sent == signal.SIGKILL:
        for lock in (root / "_stoker" / "cleanup").iterdir():
            lock.unlink()
    cleanup(root)
    lake = stoker.connect(str(root))
    assert versions(lake) == [40, 41]
    assert ids(lake) == list(range(39, 59))
    assert {name for name in files(root) if name.startswith("samples.lance/data/")} == named_files(root)


def test_a_lake_in_an_object_store(store: Store) -> None:
    root = f"s3://{BUCKET}/to-clean"
    lake = stoker.connect(root, storage_options=store.options)
    for start in range(3):
        lake.create_table("samples", make_columns(20, start=start), mode="overwrite")
    wanted = ids(lake)
    told = cleanup(root, "--keep", "1d", **store.environment())
    assert told.splitlines()[0] == "samples: removed 0 versions, 0 files (0.0 MiB)"
    together = [
        subprocess.Popen(
            command(root=root),
            env={**os.environ, **store.environment()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    ended = [(process.communicate(timeout=120), process.returncode) for process in together]
    assert any(code == 0 for _, code in ended), ended
    assert all(code == 0 or "another cleanup" in said for (_, said), code in ended), ended
    lake = stoker.connect(root, storage_options=store.options)
    assert (versions(lake), ids(lake)) == ([1, 2, 3], wanted)
