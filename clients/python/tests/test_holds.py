"""Cleanups keep the versions that streams read, while a job runs and for the configured days after."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pytest
from conftest import Server, make_columns
from s3_store import BUCKET, Store
from test_cleanup import QUERY, cleanup, ids, let_pass, versions
from test_unsafe_stores import RefusesWrites

import stoker

PATIENCE = 60
HOLD = re.compile(r"stoker\.until\.\d{4}-(0\d|1[012])-\d\d\.v[1-9]\d*")


def day(days: int) -> str:
    """Returns the date that is `days` days after today, in UTC."""
    return (datetime.now(timezone.utc) + timedelta(days=days)).strftime("%Y-%m-%d")


def hold(days: int, version: int) -> str:
    return f"stoker.until.{day(days)}.v{version}"


def tags(root: str | Path, table: str = "samples") -> dict[str, int]:
    """Returns the tags of a table by pylance; checks that Stoker's own calls leave out those of streams."""
    found = lance.dataset(f"{root}/{table}.lance").tags.list()
    own = stoker.connect(str(root)).table(table).tags
    assert own == {name: tag["version"] for name, tag in found.items() if not HOLD.fullmatch(name)}
    return {name: tag["version"] for name, tag in found.items()}


def wait_for(what: Callable[[], bool], said: str) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, said


@contextmanager
def opened(root: Path, through_server: bool, hold_days: int | None) -> Iterator[stoker.Lake]:
    """Opens a lake, in this process or through a server, that holds versions for `hold_days` days."""
    if not through_server:
        yield stoker.connect(str(root), hold_days=hold_days)
        return
    server = Server(str(root), {} if hold_days is None else {"STOKER_HOLD_DAYS": str(hold_days)})
    try:
        yield stoker.connect(server.url)
    finally:
        server.stop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake whose version 1 was replaced by version 2, with other rows, 40 days ago."""
    root = tmp_path / "lake"
    lake = stoker.connect(str(root))
    lake.create_table("samples", make_columns(60), rows_per_fragment=16)
    lake.create_table("samples", make_columns(30, start=100), mode="overwrite")
    let_pass(root, 40)
    return root


@pytest.mark.parametrize("through_server", [False, True], ids=["in process", "through a server"])
@pytest.mark.parametrize("days", [None, 3], ids=["by default", "three days"])
def test_a_version_that_is_read_stays_until_its_hold_runs_out(
    root: Path, through_server: bool, days: int | None
) -> None:
    num_days = 30 if days is None else days
    with opened(root, through_server, days) as lake:
        stream = lake.sql(f"{QUERY} AT (VERSION => 1)").stream(batch_size=8)
        batches = iter(stream)
        next(batches)
        state = json.dumps(stream.state_dict())
        assert tags(root) == {hold(num_days, 1): 1}
        said = cleanup(root)
        assert said.startswith("samples: removed 0 versions, 0 files (0.0 MiB)"), said
        assert "; 1 older version that streams hold: 1 stays\n" in said
        assert sum(batch.num_valid for batch in batches) == 52
    let_pass(root, num_days)
    cleanup(root)
    resumed = stoker.connect(str(root), hold_days=0).resume(json.loads(state), batch_size=8)
    assert sum(batch.num_valid for batch in resumed) == 52, "checkpoints of the last day are good"
    let_pass(root, 1)
    before = tags(root)
    told = cleanup(root, "--dry-run")
    assert "; versions whose holds have expired are not counted" in told
    assert tags(root) == before == {hold(-1, 1): 1}
    assert cleanup(root).startswith("samples: removed 1 version, ")
    assert (versions(stoker.connect(str(root))), tags(root)) == ([2], {})


@pytest.mark.parametrize("through_server", [False, True], ids=["in process", "through a server"])
def test_nothing_is_held_where_that_is_not_wanted(root: Path, through_server: bool) -> None:
    with opened(root, through_server, 0) as lake:
        assert len(list(lake.sql(f"{QUERY} AT (VERSION => 1)").stream(batch_size=8))) == 8
    assert tags(root) == {}
    assert cleanup(root).startswith("samples: removed 1 version, ")


def test_streams_share_a_hold_and_make_it_last_longer(root: Path) -> None:
    query = f"{QUERY} AT (VERSION => 1)"
    stoker.connect(str(root), hold_days=2).sql(query).stream(batch_size=8)
    assert tags(root) == {hold(2, 1): 1}
    jobs = [
        subprocess.Popen(
            [os.environ["STOKER_BIN"], "stream", query, "--batch-size", "8", "--lake", str(root)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for job in jobs:
        _, said = job.communicate(timeout=PATIENCE)
        assert job.returncode == 0, said
    stoker.connect(str(root), hold_days=31).sql(query).stream(batch_size=8)
    wait_for(lambda: tags(root) == {hold(31, 1): 1}, "shorter holds stay beside a longer one")
    stoker.connect(str(root), hold_days=4).sql(query).stream(batch_size=8)
    assert hold(31, 1) in tags(root)


def test_all_tables_of_a_query_are_held(root: Path) -> None:
    lake = stoker.connect(str(root))
    lake.create_table("wanted", {"key": [3, 5]})
    lake.create_table("wanted", {"key": [4]}, mode="overwrite")
    query = "SELECT id, image FROM samples AT (VERSION => 1) WHERE id IN (SELECT key FROM wanted AT (VERSION => 1))"
    assert sum(batch.num_valid for batch in lake.sql(query).stream(batch_size=8)) == 2
    assert tags(root) == {hold(30, 1): 1}
    assert tags(root, "wanted") == {hold(30, 1): 1}


def test_a_stream_that_goes_on_by_its_id_is_held_anew(root: Path) -> None:
    state = json.dumps(stoker.connect(str(root)).sql(f"{QUERY} AT (VERSION => 1)").stream(batch_size=8).state_dict())
    let_pass(root, 20)
    assert tags(root) == {hold(10, 1): 1}
    resumed = stoker.connect(str(root)).resume(json.loads(state), batch_size=8)
    assert sum(batch.num_valid for batch in resumed) == 60
    wait_for(lambda: tags(root) == {hold(30, 1): 1}, "a resumed stream is not held for longer")


def test_cleanups_of_pylance_spare_what_is_held(root: Path) -> None:
    lake = stoker.connect(str(root))
    wanted = ids(lake, "AT (VERSION => 1)")
    table = lance.dataset(f"{root}/samples.lance")
    assert {name: tag["version"] for name, tag in table.tags.list().items()} == {hold(30, 1): 1}
    with pytest.raises(OSError, match="tagged version"):
        table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)
    assert ids(stoker.connect(str(root)), "AT (VERSION => 1)") == wanted


def test_tags_of_others_are_never_taken_for_holds(root: Path) -> None:
    table = stoker.connect(str(root)).table("samples", version=1)
    names = ["stoker.until.2020-01-01", "stoker.until.2020-13-01.v1", "stoker.until.2020-01-01.v01"]
    for name in names:
        table.tag(name)
    assert "; 1 older version with a tag: 1 stays" in cleanup(root)
    assert sorted(tags(root)) == sorted(names)
    with pytest.raises(stoker.NotFoundError) as missing:
        stoker.connect(str(root)).table("samples", tag="gold")
    assert "stoker.until.2020-01-01.v01" in str(missing.value)


def test_a_hold_that_cannot_be_made_is_told_once(store: Store, tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/not-to-hold"
    stoker.connect(uri, storage_options=store.options).create_table("samples", make_columns(20))
    with closing(RefusesWrites(store, 403)) as proxy:
        environment = {name.upper(): value for name, value in store.options_at(proxy.port).items()}
        job = subprocess.run(
            [os.environ["STOKER_BIN"], "stream", QUERY, "--batch-size", "8", "--epochs", "2", "--lake", uri],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **environment},
        )
    assert job.returncode == 0, job.stderr
    assert job.stderr.count("cannot give samples@1 a tag: cleanups may remove it while it is read") == 1


@pytest.mark.parametrize(("days", "said"), [(-1, "hold_days is -1"), (3_651, "3651|3,651"), (1.5, "hold_days")])
def test_days_that_cannot_be(root: Path, days: float, said: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=said):
        stoker.connect(str(root), hold_days=days)  # type: ignore[arg-type]


def test_days_are_the_servers_own(server: Server) -> None:
    with pytest.raises(stoker.InvalidRequestError, match="it with `stoker serve --hold-days`"):
        stoker.connect(server.url, hold_days=3)
