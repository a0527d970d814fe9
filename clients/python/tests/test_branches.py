"""Branches of tables: changes, streams, cleanups and pylance, in process and through servers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import NUM_ROWS, Server, expected_image, make_columns, stoker_bin
from s3_store import BUCKET, Store
from test_cleanup import cleanup, files, let_pass

import stoker

WRITES = {"STOKER_ALLOW_WRITES": "true"}

#: Makes and drops a branch until it is killed.
MAKES_AND_DROPS = """
import sys
import stoker

lake = stoker.connect(sys.argv[1])
while True:
    lake.execute("CREATE BRANCH b ON samples")
    lake.execute("DELETE FROM samples AT (BRANCH => 'b') WHERE id < 10")
    lake.execute("DROP BRANCH b ON samples")
"""


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[stoker.Lake, str]]:
    """A lake that may be changed, with a table in two versions, and its path, which has a space."""
    path = str(tmp_path / "a lake")
    lake = stoker.connect(path)
    lake.create_table("samples", make_columns(60), rows_per_fragment=32)
    lake.table("samples").append(make_columns(NUM_ROWS - 60, start=60))
    if request.param == "in process":
        yield lake, path
        return
    server = Server(path, WRITES)
    yield stoker.connect(server.url), path
    server.stop()


def ids(lake: stoker.Lake, relation: str) -> list[int]:
    """Returns the ids of a relation, ascending."""
    return lake.sql(f"SELECT id FROM {relation} ORDER BY id").to_arrow()["id"].to_pylist()


def streamed(lake: stoker.Lake, relation: str, **options: object) -> list[int]:
    """Streams the rows of a relation, checks their images, and returns their ids in order."""
    found = []
    for batch in lake.sql(f"SELECT id, image FROM {relation}").stream(batch_size=7, last_batch="uneven", **options):
        found += [int(row) for row in batch["id"]]
        for row, image in zip(batch["id"], batch["image"], strict=True):
            np.testing.assert_array_equal(image, expected_image(int(row)))
    return found


def test_a_branch_is_a_table_of_its_own(place: tuple[stoker.Lake, str]) -> None:
    lake, path = place
    branch = lake.table("samples").create_branch("trial")
    assert (branch.name, branch.num_rows) == ("samples@trial", NUM_ROWS)
    old = lake.table("samples", version=1).create_branch("old")
    assert ids(lake, "samples AT (BRANCH => 'old')") == list(range(60))
    assert old.version == 1

    assert branch.delete("id >= 90").num_rows == NUM_ROWS - 90
    assert lake.table("samples@trial").update({"label": 100}, "id < 10").num_rows == 10
    lake.table("samples@trial").add_column("half", value="id / 2")
    lake.table("samples@trial").create_index("id", kind="btree")
    lake.table("samples").delete("id < 5")
    assert ids(lake, "samples AT (BRANCH => 'trial')") == list(range(90))
    assert ids(lake, "samples") == list(range(5, NUM_ROWS))
    assert ids(lake, '"samples@trial" WHERE label >= 100') == list(range(10))
    assert "half" not in lake.table("samples").schema.names
    assert ids(lake, '"samples@trial" WHERE id = 7') == [7]

    # A stream reads the branch from the files of the table and its own.
    in_order = streamed(lake, "samples AT (BRANCH => 'trial')", shuffle=False)
    assert in_order == list(range(90))
    assert sorted(streamed(lake, '"samples@trial"', seed=3)) == list(range(90))

    # pylance reads the same branch.
    dataset = lance.dataset(f"{path}/samples.lance")
    assert set(dataset.branches.list()) == {"trial", "old"}
    theirs = dataset.checkout_version(("trial", None)).to_table(columns=["id", "half"])
    assert sorted(theirs["id"].to_pylist()) == list(range(90))

    with pytest.raises(stoker.AlreadyExistsError, match="branch 'trial' of table samples already exists"):
        lake.table("samples").create_branch("trial")
    with pytest.raises(stoker.NotFoundError, match="branches: old, trial"):
        lake.table("samples@none")
    with pytest.raises(stoker.InvalidRequestError, match="is a branch: write DROP BRANCH trial ON samples"):
        lake.execute('DROP TABLE "samples@trial"')
    with pytest.raises(stoker.InvalidRequestError, match="is the table itself"):
        lake.table("samples").create_branch("main")


def test_a_branch_of_pylance_is_read_and_changed(place: tuple[stoker.Lake, str]) -> None:
    lake, path = place
    dataset = lance.dataset(f"{path}/samples.lance")
    theirs = dataset.create_branch("theirs")
    theirs.delete("id % 2 = 1")
    even = list(range(0, NUM_ROWS, 2))
    assert ids(lake, "samples AT (BRANCH => 'theirs')") == even
    assert streamed(lake, "samples AT (BRANCH => 'theirs')", shuffle=False) == even
    stoker.connect(path).table("samples@theirs").append(make_columns(3, start=200))
    assert ids(lake, '"samples@theirs"') == [*even, 200, 201, 202]
    assert ids(lake, "samples") == list(range(NUM_ROWS))
    stoker.connect(path).create_table("samples", make_columns(5), mode="overwrite")
    let_pass(Path(path), 40)
    cleanup(path)
    found = lance.dataset(f"{path}/samples.lance").checkout_version(("theirs", None))
    assert sorted(found.to_table(columns=["id"])["id"].to_pylist()) == [*even, 200, 201, 202]


def test_branches_in_the_folder_of_another_name_stay(place: tuple[stoker.Lake, str]) -> None:
    lake, path = place
    lance.dataset(f"{path}/samples.lance").create_branch("trial/inner").delete("id >= 10")
    with pytest.raises(stoker.InvalidRequestError, match="branch 'trial/inner' lies in the folder of that name"):
        lake.table("samples").create_branch("trial")
    inner = lance.dataset(f"{path}/samples.lance").checkout_version(("trial/inner", None))
    assert inner.count_rows() == 10


def test_ingests_into_a_branch_know_the_files_of_its_table(tmp_path: Path) -> None:
    root, source = tmp_path / "lake", tmp_path / "source"
    source.mkdir()

    def ingest(table: str, *names: str, mode: str = "append") -> int:
        for name in names:
            pq.write_table(pa.table({"id": [ord(name)]}), source / f"{name}.parquet")
        command = [stoker_bin(), "ingest", "parquet", str(source), table, "--mode", mode, "--lake", str(root)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return stoker.connect(str(root)).table(table).num_rows

    assert ingest("t", "a", "b", mode="create") == 2
    lake = stoker.connect(str(root))
    lake.table("t").create_branch("dev")
    assert ingest("t@dev") == 2, "the files of the table are known"
    assert ingest("t@dev", "c") == 3
    assert ingest("t", "d") == 4
    assert ingest("t@dev") == 4
    lake.table("t").drop_branch("dev")
    lake.table("t").create_branch("dev")
    assert ingest("t@dev", "e") == 5
    assert ingest("t@dev") == 5


def test_a_stream_of_a_branch_goes_on_while_the_branch_changes(place: tuple[stoker.Lake, str]) -> None:
    lake, _ = place
    lake.table("samples").create_branch("trial").delete("id >= 80")
    query = lake.sql("SELECT id, image FROM samples AT (BRANCH => 'trial')")
    stream = query.stream(batch_size=8, seed=5)
    batches = iter(stream)
    seen = [int(row) for row in next(batches)["id"]]
    state = stream.state_dict()
    stream.close()
    lake.table("samples@trial").delete("id < 40")
    lake.table("samples").delete("id < 40")
    with lake.resume(state, batch_size=8) as resumed:
        seen += [int(row) for batch in resumed for row in batch["id"]]
    assert sorted(seen) == list(range(80))

    with pytest.raises(stoker.InvalidRequestError, match="streams read its versions"):
        lake.table("samples").drop_branch("trial")
    lake.table("samples").drop_branch("trial", cascade=True)
    with pytest.raises(stoker.NotFoundError, match="branch 'trial' of table samples"):
        lake.table("samples@trial")
    assert ids(lake, "samples") == list(range(40, NUM_ROWS))


def test_a_cleanup_keeps_what_branches_need(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lake = stoker.connect(str(root))
    lake.create_table("samples", make_columns(60), rows_per_fragment=16)
    lake.create_table("samples", make_columns(40, start=100), mode="overwrite", rows_per_fragment=16)
    lake.table("samples", version=1).create_branch("first")
    lake.table("samples@first").append(make_columns(4, start=60))
    lake.create_table("samples@first", make_columns(8, start=300), mode="overwrite")
    lake.table("samples@first", version=2).create_branch("second")
    lake.create_table("samples", make_columns(30, start=200), mode="overwrite", rows_per_fragment=16)
    let_pass(root, 40)
    told = cleanup(root, "--dry-run")
    assert [line.split(":")[0] for line in told.splitlines()[:3]] == ["samples@first", "samples@second", "samples"]
    before = files(root)
    cleanup(root)
    assert len(files(root)) < len(before), "version 2 of the table is gone"
    lake = stoker.connect(str(root))
    assert ids(lake, "samples") == list(range(200, 230))
    assert ids(lake, '"samples@first"') == list(range(300, 308))
    assert ids(lake, '"samples@second"') == list(range(64)), "its files are those of the table and of a branch"
    assert streamed(lake, '"samples@second"', shuffle=False) == list(range(64))
    for branch in ("second", "first"):
        lake.table("samples").drop_branch(branch, cascade=True)
    assert not [name for name in files(root) if "/tree/" in name]
    let_pass(root, 40)
    cleanup(root)
    kept = {name for name in files(root) if name.startswith("samples.lance/data/")}
    dataset = lance.dataset(f"{root}/samples.lance")
    named = {file.path for fragment in dataset.get_fragments() for file in fragment.data_files()}
    assert kept == {f"samples.lance/data/{name}" for name in named}


def test_a_lake_behind_a_link_is_not_cleaned_of_what_branches_need(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    lake = stoker.connect(str(root))
    lake.create_table("samples", make_columns(60))
    lake.table("samples").create_branch("trial")
    lake.create_table("samples", make_columns(40, start=100), mode="overwrite")
    let_pass(root, 40)
    link = tmp_path / "link"
    link.symlink_to(root)
    before = files(root)
    done = subprocess.run([stoker_bin(), "cleanup", "--lake", str(link)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "its branch 'trial' names files that it needs by the URI" in done.stderr
    assert files(root) == before
    cleanup(root)
    assert ids(stoker.connect(str(root)), "samples AT (BRANCH => 'trial')") == list(range(60))


def test_branches_on_an_object_store(store: Store) -> None:
    lake = stoker.connect(f"s3://{BUCKET}/branches", storage_options=store.options)
    lake.create_table("samples", make_columns(60), rows_per_fragment=32)
    lake.table("samples").create_branch("trial")
    lake.table("samples@trial").append(make_columns(20, start=60))
    assert streamed(lake, "samples AT (BRANCH => 'trial')", shuffle=False) == list(range(80))
    assert ids(lake, "samples") == list(range(60))
    lake.table("samples").drop_branch("trial", cascade=True)
    with pytest.raises(stoker.NotFoundError, match="the table has no branches"):
        lake.table("samples@trial")


@pytest.mark.parametrize("moment", ["claimed", "files without a name", "named"])
def test_a_killed_process_leaves_a_branch_or_none(tmp_path: Path, moment: str) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", make_columns(NUM_ROWS))
    claim, root = tmp_path / "_stoker" / "branches" / "samples" / "b", tmp_path / "samples.lance"
    folder, name = root / "tree" / "b", root / "_refs" / "branches" / "b.json"
    moments: dict[str, Callable[[], bool]] = {
        "claimed": claim.exists,
        "files without a name": lambda: folder.exists() and not name.exists(),
        "named": name.exists,
    }
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", MAKES_AND_DROPS, str(tmp_path)]) as process:
            while not moments[moment]():
                assert process.poll() is None, "it makes and drops the branch until it is killed"
            process.kill()
        assert ids(lake, "samples") == list(range(NUM_ROWS))
        if lake.sql("SELECT branch_name FROM branches(samples) WHERE branch_name = 'b'").to_arrow().num_rows:
            assert ids(lake, "samples AT (BRANCH => 'b')") in (list(range(NUM_ROWS)), list(range(10, NUM_ROWS)))
        if claim.exists():
            with pytest.raises(stoker.UnavailableError, match="another process makes or drops this branch"):
                lake.execute("CREATE BRANCH IF NOT EXISTS b ON samples")
        for left in (*claim.parent.rglob("*"), *folder.rglob("*")):
            os.utime(left, (1, 1))
        lake.execute("DROP BRANCH IF EXISTS b ON samples")
        lake.execute("CREATE BRANCH b ON samples")
        assert ids(lake, "samples AT (BRANCH => 'b')") == list(range(NUM_ROWS))
        lake.execute("DROP BRANCH b ON samples")
        assert not folder.exists()
        assert not claim.exists()
