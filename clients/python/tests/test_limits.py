"""Streams that cannot be delivered are refused with the reason: huge batches, huge epoch numbers, removed snapshots."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
from conftest import NUM_ROWS, Server, make_columns
from test_bad_images import NUM_ROWS as BATCH_ROWS
from test_bad_images import write as write_photos
from test_decode import files
from test_service import refused

import stoker

QUERY = "SELECT id, image, name FROM samples"
TOO_LARGE = (
    r"a batch of \d+ rows takes [\d.]+ GB, and this process may have [\d.]+ GB of memory: use a smaller batch size"
)


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, lake_path: str, server: Server) -> stoker.Lake:
    """The lake, in process and through a server."""
    return stoker.connect(lake_path if request.param == "in process" else server.url)


@pytest.mark.parametrize("columns", ["id, image, name", "id"])
def test_batches_that_no_memory_holds_are_refused(place: stoker.Lake, columns: str) -> None:
    query = place.sql(f"SELECT {columns} FROM samples")
    cases: list[dict[str, Any]] = [
        {"batch_size": 2**32},
        {"global_batch_size": 2**32},
        {"batch_size": 2**31, "rank": 1, "world_size": 2},
        {"global_batch_size": 2**32, "rank": 2, "world_size": 3},
    ]
    for options in cases:
        with pytest.raises(stoker.ResourceExhaustedError, match=TOO_LARGE):
            query.stream(last_batch="pad", **options)
    # Without padding, a batch has at most as many rows as the epoch, so it fits.
    for options in cases:
        held = query.stream(last_batch="uneven", **options)
        assert sum(batch.num_valid for batch in held) > 0
        assert list(query.stream(last_batch="drop", **options)) == []


def test_batches_that_no_memory_holds_are_refused_at_the_command_line(lake_path: str, server: Server) -> None:
    for options in (["--lake", lake_path], ["--server", server.url]):
        for size in ("--batch-size", "--global-batch-size"):
            error = refused("stream", QUERY, size, str(2**32), "--last-batch", "pad", *options)
            assert "of memory: use a smaller batch size" in error


@pytest.mark.parametrize("through_server", [False, True], ids=["in process", "through a server"])
def test_decoded_batches_that_no_memory_holds_are_refused(tmp_path: Path, through_server: bool) -> None:
    own = write_photos(tmp_path, list(files(BATCH_ROWS)))
    server = Server(own.target) if through_server else None
    query = (own if server is None else stoker.connect(server.url)).sql("SELECT id, image FROM photos")
    # A batch of encoded files of a few hundred bytes each fits in memory. A batch of decoded tensors of 0.2 GB each
    # does not.
    large = {"image": stoker.ImageTransform(size=(8_192, 8_192))}
    with pytest.raises(stoker.ResourceExhaustedError, match=TOO_LARGE):
        list(query.stream(batch_size=2**12, last_batch="pad", decode=large))
    with pytest.raises(stoker.ResourceExhaustedError, match=TOO_LARGE):
        list(query.torch(batch_size=2**12, last_batch="pad", decode=large))
    small = {"image": stoker.ImageTransform(size=8)}
    (batch,) = query.stream(batch_size=2**12, last_batch="pad", decode=small)
    assert (batch.num_valid, batch["image"].shape) == (BATCH_ROWS, (2**12, 3, 8, 8))
    if server is not None:
        server.stop()


#: A program that may allocate only 1 GiB more: its batch of 2 GiB is refused, and small batches still arrive.
SHORT_OF_MEMORY = """
import resource, sys, stoker
query = stoker.connect(sys.argv[1]).sql("SELECT x FROM wide")
small = lambda: sum(batch.num_valid for batch in query.stream(batch_size=8, last_batch="uneven"))
assert small() == 40
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (1 << 30), -1))
try:
    list(query.stream(batch_size=2**15, last_batch="pad"))
except stoker.ResourceExhaustedError as error:
    print(error)
assert small() == 40
"""


@pytest.mark.parametrize("through_server", [False, True], ids=["in process", "through a server"])
def test_memory_that_the_system_does_not_give_is_an_error(tmp_path: Path, through_server: bool) -> None:
    rows = np.arange(40, dtype=np.uint8)[:, None].repeat(1 << 16, axis=1)
    stoker.connect(str(tmp_path)).create_table("wide", {"x": rows})
    server = Server(str(tmp_path)) if through_server else None
    place = str(tmp_path) if server is None else server.url
    job = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY, place], capture_output=True, text=True, timeout=120)
    assert job.returncode == 0, job.stderr
    assert "bytes of memory for a batch: use a smaller batch size" in job.stdout
    if server is not None:
        server.stop()


def test_epochs_of_a_mixture_that_cannot_be_counted_are_refused(place: stoker.Lake) -> None:
    query = place.sql(QUERY)
    mixture = stoker.mix([(query, 0.5), (place.sql(f"{QUERY} WHERE id < 9"), 0.5)], epoch_rows=256)
    last = mixture.stream(batch_size=64, epoch=2**56 - 2)
    saved = last.state_dict()
    assert sum(batch.num_valid for batch in last) == 256
    for epoch in (2**56 - 1, 2**56, 2**63 - 1):
        with pytest.raises(stoker.InvalidRequestError, match=f"{epoch} is beyond the {2**56 - 1} epochs"):
            mixture.stream(batch_size=64, epoch=epoch)
        state = {**saved, "epoch": epoch}
        with pytest.raises(stoker.InvalidRequestError, match="beyond"):
            mixture.stream(batch_size=64).load_state_dict(state)
    assert sum(batch.num_valid for batch in query.stream(batch_size=64, epoch=2**63 - 1)) == NUM_ROWS


def clean_up(path: str) -> None:
    """Overwrites the table, deletes the tags by which streams hold versions, and removes all older versions."""
    stoker.connect(path).create_table("samples", make_columns(50, start=1_000), mode="overwrite")
    table = lance.dataset(f"{path}/samples.lance")
    for hold in table.tags.list():
        table.tags.delete(hold)
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


REMOVED = "the snapshot samples@1 was removed by a cleanup of old versions"


@pytest.mark.parametrize("through_server", [False, True], ids=["in process", "through a server"])
def test_a_removed_snapshot_is_named(tmp_path: Path, through_server: bool) -> None:
    path = str(tmp_path / "lake")
    stoker.connect(path).create_table("samples", make_columns(600), rows_per_fragment=100)
    server = Server(path) if through_server else None
    lake = stoker.connect(path if server is None else server.url)
    stream = lake.sql(QUERY).stream(batch_size=8, memory_budget_bytes=1)
    batches = iter(stream)
    next(batches)
    state, pickled = json.dumps(stream.state_dict()), pickle.dumps(stream)
    clean_up(path)
    if server is None:
        with pytest.raises(stoker.NotFoundError, match=REMOVED):  # in the middle of the epoch
            list(batches)
    stream.set_epoch(1)
    with pytest.raises(stoker.NotFoundError, match=f"{REMOVED}.*tag versions"):
        list(stream)
    elsewhere = stoker.connect(path)
    place = ["--lake", path]
    if server is not None:
        server.stop()
        server = Server(path)
        elsewhere, place = stoker.connect(server.url), ["--server", server.url]
    with pytest.raises(stoker.NotFoundError, match=REMOVED):
        elsewhere._native.load_stream(state)
    with pytest.raises(stoker.StateMismatchError, match=r"samples@1.*samples@2.*lake\.resume"):
        elsewhere.sql(QUERY).stream(batch_size=8).load_state_dict(state)
    assert REMOVED in refused("stream", "--state", state, *place)
    with pytest.raises(
        stoker.NotFoundError, match="a cleanup of old versions removed it; cleanups keep versions with a tag"
    ):
        elsewhere.sql("SELECT id FROM samples AT (VERSION => 1)")
    if server is None:
        with pytest.raises(stoker.NotFoundError, match=REMOVED):
            list(pickle.loads(pickled))
    else:
        server.stop()


def test_damage_is_still_damage(tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    lake = stoker.connect(path)
    lake.create_table("samples", make_columns(600), rows_per_fragment=100)
    stream = lake.sql("SELECT id, name FROM samples").stream(batch_size=8, memory_budget_bytes=1)
    for file in (tmp_path / "lake/samples.lance/data").iterdir():
        file.unlink()
    with pytest.raises(stoker.DataCorruptError, match="missing"):
        list(stream)
