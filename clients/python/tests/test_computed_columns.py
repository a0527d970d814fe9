"""Columns that a function computes: their values, what they cost, and what happens meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from column_worker import BATCH_SIZE

import stoker

NUM_ROWS = 50
#: The elements of a vector that is a heavy column.
WIDTH = 300


def columns_of(ids: Any) -> dict[str, Any]:
    ids = np.asarray(ids, dtype=np.int64)
    image = ((ids[:, None] * 7 + np.arange(2_000)) % 251).astype(np.uint8).reshape(-1, 1, 40, 50)
    return {"id": ids, "image": image, "name": [f"row {row}" for row in ids]}


@pytest.fixture
def table(tmp_path: Path) -> stoker.Table:
    """A table of five fragments, the third without one of its rows."""
    lake = stoker.connect(str(tmp_path / "lake"))
    lake.create_table("t", columns_of(range(NUM_ROWS)), rows_per_fragment=10)
    lake.table("t").delete("id IN (0, 23, 24)")
    return lake.table("t")


def rows_of(table: stoker.Table, *names: str) -> dict[int, tuple[Any, ...]]:
    """Returns the values of columns by the id of the row."""
    listed = ", ".join(["id", *names])
    found = table._lake.sql(f'SELECT {listed} FROM "{table.name}" AT (VERSION => {table.version})').to_arrow()
    columns = [found.column(name).to_pylist() for name in names]
    return {row: tuple(column[at] for column in columns) for at, row in enumerate(found["id"].to_pylist())}


def feature(ids: Any) -> np.ndarray[Any, Any]:
    return (np.asarray(ids)[:, None] + np.arange(WIDTH) / 8).astype(np.float32)


@pytest.mark.parametrize("batch_format", ["numpy", "arrow", "torch"])
def test_values_are_those_of_the_function(table: stoker.Table, batch_format: Any) -> None:
    if batch_format == "torch":
        pytest.importorskip("torch")
    seen: list[int] = []

    def compute(batch: Any) -> Any:
        ids = batch["id"]
        seen.extend(int(row) for row in (ids.to_pylist() if batch_format == "arrow" else ids))
        assert len(batch["image"]) == len(ids)
        if batch_format == "torch":
            import torch

            return ids[:, None] + torch.arange(WIDTH, dtype=torch.float32) / 8
        return feature(ids.to_numpy() if batch_format == "arrow" else ids)

    added = table.add_column("emb", compute, columns=["id", "image"], batch_size=7, batch_format=batch_format)
    left = [row for row in range(NUM_ROWS) if row not in (0, 23, 24)]
    assert seen == left, "each row once, in the order of the addresses"
    assert (added.version, added.schema.names) == (table.version + 1, ["id", "image", "name", "emb"])
    found = rows_of(added, "emb", "name")
    assert sorted(found) == left
    for row, (emb, name) in found.items():
        assert np.array_equal(np.asarray(emb, np.float32), feature([row])[0]), row
        assert name == f"row {row}"
    layout = {column.name: column for column in added.describe()}["emb"]
    assert (layout.dense, layout.unchecked_fragments) == (True, 0), layout
    assert {found.code for found in added.doctor()} <= {"small_fragments", "deleted_rows"}
    # Another reader of Lance sees the same.
    theirs = lance.dataset(f"{table._lake.target}/t.lance").to_table(columns=["id", "emb"])
    for row, emb in zip(theirs["id"].to_pylist(), theirs["emb"].to_pylist(), strict=True):
        assert np.array_equal(np.asarray(emb, np.float32), feature([row])[0])


@pytest.mark.parametrize(
    ("compute", "kind"),
    [
        (lambda batch: batch["id"] * 2, "int64"),
        (lambda batch: [f"<{row}>" for row in batch["id"]], "string"),
        (lambda batch: batch["id"] % 2 == 0, "bool"),
        (lambda batch: batch["image"][:, :, :4, :4], "extension<arrow.fixed_shape_tensor"),
        (lambda batch: pa.array([None if row % 3 else int(row) for row in batch["id"]], pa.int32()), "int32"),
        (lambda batch: pa.array([[int(row)] * (row % 4) for row in batch["id"]]), "list<"),
    ],
)
def test_the_type_is_that_of_the_values(table: stoker.Table, compute: Callable[[Any], Any], kind: str) -> None:
    added = table.add_column("c", compute, columns=["id", "image"], batch_size=8)
    assert str(added.schema.field("c").type).startswith(kind)
    found = rows_of(added, "c")
    ids = np.asarray(sorted(found))
    expected = compute({"id": ids, "image": columns_of(ids)["image"]})
    expected = expected.to_pylist() if isinstance(expected, pa.Array) else list(expected)
    for row, value in zip(ids.tolist(), expected, strict=True):
        (own,) = found[row]
        assert np.array_equal(np.asarray(own), np.asarray(value).reshape(np.asarray(own).shape)), row


def test_a_declared_type_casts_the_values(table: stoker.Table) -> None:
    added = table.add_column("c", lambda batch: batch["id"] * 0.5, columns="id", data_type="REAL")
    assert added.schema.field("c").type == pa.float32()
    with pytest.raises(
        stoker.InvalidRequestError, match=rf"column d, the row whose row_id is {3 << 32}.*300 does not fit"
    ):
        table.add_column("d", lambda batch: batch["id"] * 10, columns="id", data_type="TINYINT", where="id = 30")
    assert "d" not in table._lake.table("t").schema.names


def test_mistakes_name_the_rows(table: stoker.Table) -> None:
    def failing(batch: Any) -> Any:
        if 31 in batch["id"]:
            raise ZeroDivisionError("no such luck")
        return batch["id"]

    with pytest.raises(stoker.InvalidRequestError) as raised:
        table.add_column("c", failing, columns="id", batch_size=10)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    for part in (
        "column c of table t version 2",
        "ZeroDivisionError: no such luck",
        f"row ids {(2 << 32) + 1} to {(3 << 32) + 2}:",
        "kept for",
    ):
        assert part in str(raised.value), part

    def changing(batch: Any) -> Any:
        return feature(batch["id"]) if 1 in batch["id"] else feature(batch["id"])[:, 1:]

    for compute, part in [
        (changing, "values of type FixedSizeList.*are needed, as of the rows before, not FixedSizeList"),
        (lambda batch: batch["id"][1:], "returned 46 values for 47 rows"),
        (lambda batch: None, "the function returned NoneType"),
        (lambda batch: "text", "the function returned str"),
        (lambda batch: pa.nulls(len(batch["id"])), "all NULL.*data_type"),
        (lambda batch: pa.array([None if row == 7 else [0.5] * WIDTH for row in batch["id"]],
                                pa.list_(pa.float32(), WIDTH)), "row whose row_id is 7: its value is NULL"),
    ]:  # fmt: skip
        size = 8 if compute is changing else 100
        with pytest.raises(stoker.InvalidRequestError, match=part):
            table.add_column("c", compute, columns="id", batch_size=size, resume=False)
    for options, part in [
        ({"columns": None}, "columns is missing"),
        ({"columns": ["id", "nothing"]}, "has no column nothing; its columns are|no column nothing: its columns"),
        ({"columns": "id", "sql": "1"}, "a function and sql"),
        ({"columns": "id", "batch_format": "polars"}, "batch_format is 'polars'"),
        ({"columns": "id", "checkpoint_secs": -1}, "checkpoint_secs is -1"),
        ({"columns": "id", "replace": True}, "there is no such column"),
        ({"columns": "id", "progress": 3}, "progress is a int"),
        ({"columns": "id", "where": "nothing > 1"}, "nothing"),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=part):
            table.add_column("c", lambda batch: batch["id"], **options)
    with pytest.raises(stoker.AlreadyExistsError, match=r"column name of table t exists already.*replace=True"):
        table.add_column("name", lambda batch: batch["id"], columns="id")
    assert table._lake.table("t").version == table.version


def test_some_rows_get_values(table: stoker.Table) -> None:
    seen: list[int] = []

    def compute(batch: Any) -> Any:
        seen.extend(batch["id"].tolist())
        return batch["id"] * 2

    added = table.add_column("c", compute, columns="id", where="id % 10 < $1 -- some", params=[3], batch_size=4)
    chosen = [row for row in range(1, NUM_ROWS) if row % 10 < 3]
    assert seen == chosen
    assert rows_of(added, "c") == {row: (row * 2 if row in chosen else None,) for row in rows_of(added)}
    # Vectors of more than 1 KiB are never NULL: a mask tells which rows have one.
    added = added.add_column("emb", lambda batch: feature(batch["id"]), columns="id", where="id < 15")
    assert added.schema.names[-2:] == ["emb", "emb_valid"]
    layout = {column.name: column for column in added.describe()}["emb"]
    assert (layout.dense, layout.unchecked_fragments) == (True, 0), layout
    for row, (emb, valid) in rows_of(added, "emb", "emb_valid").items():
        assert valid == (row < 15)
        assert np.array_equal(np.asarray(emb, np.float32), feature([row])[0] if valid else np.zeros(WIDTH))
    batch = next(iter(table._lake.sql("SELECT id, emb, emb_valid FROM t").numpy(batch_size=47, shuffle=False)))
    assert batch.is_valid("emb").tolist() == [row < 15 for row in batch["id"]]
    # Nothing was chosen.
    with pytest.raises(stoker.InvalidRequestError, match=r"no row has a value.*data_type"):
        table.add_column("none", compute, columns="id", where="id < 0")
    added = table.add_column("none", compute, columns="id", where="id < 0", data_type="BIGINT")
    assert set(rows_of(added, "none").values()) == {(None,)}


def test_columns_are_computed_anew(table: stoker.Table) -> None:
    lake = table._lake
    first = table.add_column("c", lambda batch: batch["id"] * 2, columns="id")
    first.create_index("c", kind="btree")
    # Rows that are not chosen keep their values.
    filled = first.add_column(
        "c", lambda batch: -batch["id"], columns="id", where="id >= 45", replace=True, batch_size=3
    )
    expected = {row: (-row if row >= 45 else row * 2,) for row in rows_of(filled)}
    assert rows_of(filled, "c") == expected
    assert lake.sql("SELECT id FROM t WHERE c = -47").to_arrow()["id"].to_pylist() == [47]
    assert (
        first.add_column("c", lambda batch: batch["id"], columns="id", where="id < 0", replace=True).version
        == filled.version
    )
    anew = first.add_column("c", lambda batch: [str(row) for row in batch["id"]], columns="id", replace=True)
    assert rows_of(anew, "c") == {row: (str(row),) for row in rows_of(anew)}
    assert anew.schema.names == filled.schema.names
    assert not {column.name: column for column in anew.describe()}["c"].indexes
    assert rows_of(lake.table("t", version=filled.version), "c") == expected
    # A mask is made anew with its column.
    some = anew.add_column("emb", lambda batch: feature(batch["id"]), columns="id", where="id < 15")
    more = some.add_column(
        "emb", lambda batch: feature(batch["id"]), columns="id", where="NOT emb_valid AND id < 30", replace=True
    )
    assert {row for row, (valid,) in rows_of(more, "emb_valid").items() if valid} == set(rows_of(more)) & set(range(30))
    for row, (emb,) in rows_of(more, "emb").items():
        assert np.array_equal(np.asarray(emb, np.float32), feature([row])[0] if row < 30 else np.zeros(WIDTH))
    everywhere = more.add_column("emb", lambda batch: feature(batch["id"]), columns="id", replace=True)
    assert all(valid for (valid,) in rows_of(everywhere, "emb_valid").values())
    assert {found.code for found in lake.table("t").doctor()} <= {"small_fragments", "deleted_rows"}


def test_expressions_choose_and_replace(table: stoker.Table) -> None:
    added = table.add_column("c", sql="id * 2", where="id < $1", params=[10])
    assert rows_of(added, "c") == {row: (row * 2 if row < 10 else None,) for row in rows_of(added)}
    added = table.add_column("c", sql="id * 0.5", replace=True)
    assert rows_of(added, "c") == {row: (row * 0.5,) for row in rows_of(added)}
    added = table.add_column("c", sql="0", where="id > 10", replace=True)
    assert rows_of(added, "c") == {row: (row * 0.5 if row <= 10 else 0.0,) for row in rows_of(added)}
    assert table.add_column("d", "BIGINT").schema.field("d").type == pa.int64()
    for options in [
        {},
        {"sql": "1", "value": "1"},
        {"where": "id > 1", "data_type": "INT"},
        {"columns": "id", "sql": "1"},
    ]:
        with pytest.raises(stoker.InvalidRequestError):
            table.add_column("e", **options)


def test_small_tables(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("one", columns_of([5]))
    one = lake.table("one").add_column("c", lambda batch: feature(batch["id"]), columns="id")
    assert np.array_equal(rows_of(one, "c")[5][0], feature([5])[0].tolist())
    empty = lake.create_table("empty", columns_of([5]))
    empty.truncate()
    with pytest.raises(stoker.InvalidRequestError, match=r"no row has a value.*data_type"):
        empty.add_column("c", lambda batch: batch["id"], columns="id")
    added = empty.add_column("c", lambda batch: batch["id"], columns="id", data_type="FLOAT[4]")
    assert (added.num_rows, added.schema.names[-1]) == (0, "c")
    added.append({**columns_of([7]), "c": np.ones((1, 4), np.float32)})
    assert rows_of(lake.table("empty"), "c") == {7: ([1.0] * 4,)}


def test_a_call_goes_on_after_an_exception(table: stoker.Table) -> None:
    calls: Counter[int] = Counter()
    broken = True

    def compute(batch: Any) -> Any:
        if broken and 35 in batch["id"]:
            raise RuntimeError("out of memory")
        calls.update(batch["id"].tolist())
        return feature(batch["id"])

    told: list[stoker.StatementProgress] = []
    with pytest.raises(stoker.InvalidRequestError, match="out of memory"):
        table.add_column("emb", compute, columns="id", batch_size=5, resume_key="v1")
    broken = False
    added = table.add_column("emb", compute, columns="id", batch_size=5, resume_key="v1", progress=told.append)
    # The fragments of rows 0 to 29 were finished; rows 30 to 32 were of the one under way.
    assert {row for row, num in calls.items() if num > 1} == {30, 31, 32}
    assert set(calls.values()) == {1, 2}
    assert (told[0].done, told[0].total, told[-1].done) == (27, 47, 47)
    for row, (emb,) in rows_of(added, "emb").items():
        assert np.array_equal(np.asarray(emb, np.float32), feature([row])[0])
    # With another key, or without resuming, all rows are computed.
    for options in [{"resume_key": "v2"}, {"resume_key": "v1", "resume": False}]:
        broken = True
        with pytest.raises(stoker.InvalidRequestError, match="out of memory"):
            table.add_column("again", compute, columns="id", batch_size=5, resume_key="v1")
        broken = False
        calls.clear()
        table.add_column("again", compute, columns="id", batch_size=5, **options)
        assert set(calls.values()) == {1}
        assert len(calls) == 47
        table.drop_column("again")


def test_a_function_with_other_code_begins_anew(table: stoker.Table) -> None:
    def first(batch: Any) -> Any:
        if 35 in batch["id"]:
            raise RuntimeError("not yet")
        return batch["id"] * 2

    with pytest.raises(stoker.InvalidRequestError, match="not yet"):
        table.add_column("c", first, columns="id", batch_size=5)

    def second(batch: Any) -> Any:
        return batch["id"] * 3

    second.__qualname__ = first.__qualname__
    assert rows_of(table.add_column("c", second, columns="id"), "c") == {row: (row * 3,) for row in rows_of(table)}


def run_worker(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    worker = str(Path(__file__).with_name(name))
    return subprocess.run([sys.executable, worker, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kill_at", [1, 2, 6, 11])
def test_a_killed_process_goes_on(table: stoker.Table, tmp_path: Path, kill_at: int) -> None:
    log, target = tmp_path / "log", table._lake.target
    killed = run_worker("column_worker.py", target, "t", "c", log, kill_at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert table._lake.table("t").version == table.version
    done = run_worker("column_worker.py", target, "t", "c", log)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == table.version + 1
    counts = Counter(map(int, log.read_text().split()))
    assert set(counts) == set(rows_of(table))
    # Only the rows of the call in which it was killed were computed again.
    assert sum(counts.values()) - len(counts) == min(BATCH_SIZE, len(counts) - BATCH_SIZE * (kill_at - 1))
    added = table._lake.table("t")
    assert all(c == [row * 2.0] * WIDTH for row, (c,) in rows_of(added, "c").items())
    assert not list(Path(target, "_stoker", "columns").rglob("*.json"))
    # The same call again is told that the column exists.
    again = run_worker("column_worker.py", target, "t", "c", log)
    assert again.returncode == 1
    assert "AlreadyExistsError" in again.stderr
    assert "exists already" in again.stderr


def test_others_change_the_table_meanwhile(table: stoker.Table) -> None:
    others = stoker.connect(table._lake.target)
    calls: Counter[int] = Counter()
    changes: list[Callable[[], object]] = [
        lambda: others.table("t").append({**columns_of(range(50, 55)), "other": pa.nulls(5, pa.int64())}),
        lambda: others.table("t").delete("id IN (5, 44)"),
        lambda: others.table("t").update({"name": "other"}, "id = 12"),
        lambda: others.table("t").add_column("other", sql="id + 1"),
        lambda: others.table("t").create_index("id", kind="btree"),
    ]

    def compute(batch: Any) -> Any:
        calls.update(batch["id"].tolist())
        if changes and 40 in batch["id"]:
            while changes:
                changes.pop()()
        return feature(batch["id"])

    added = table.add_column("emb", compute, columns="id", batch_size=10)
    assert set(calls.values()) == {1}, "no row was computed again"
    assert set(calls) == {row for row in range(1, 55) if row not in (23, 24)}
    found = rows_of(added, "emb", "name", "other")
    assert set(found) == set(calls) - {5, 44}
    for row, (emb, name, other) in found.items():
        assert np.array_equal(np.asarray(emb, np.float32), feature([row])[0]), row
        assert name == ("other" if row == 12 else f"row {row}")
        assert other == (None if row >= 50 else row + 1)


def test_changed_inputs_and_moved_rows_are_computed_again(table: stoker.Table) -> None:
    others = stoker.connect(table._lake.target)
    calls: Counter[str] = Counter()
    changes: list[Callable[[], object]] = [
        lambda: lance.dataset(f"{table._lake.target}/t.lance").optimize.compact_files(target_rows_per_fragment=25),
        lambda: others.table("t").update({"name": "changed"}, "id = 12"),
    ]

    def compute(batch: Any) -> Any:
        calls.update(batch["name"])
        # The last row of the table, and then the row that was changed meanwhile.
        last = "row 49" if len(changes) == 2 else "changed"
        if changes and last in batch["name"]:
            changes.pop()()
        return [f"<{name}>" for name in batch["name"]]

    added = table.add_column("c", compute, columns="name", batch_size=10)
    assert calls["changed"] >= 1
    assert not changes
    for row, (name, c) in rows_of(added, "name", "c").items():
        assert c == f"<{name}>"
        assert name == ("changed" if row == 12 else f"row {row}")


def test_of_two_processes_one_adds_the_column(table: stoker.Table, tmp_path: Path) -> None:
    ran: list[subprocess.CompletedProcess[str]] = []

    def compute(batch: Any) -> Any:
        if not ran:
            ran.append(run_worker("column_worker.py", table._lake.target, "t", "c", tmp_path / "log"))
        return batch["id"]

    with pytest.raises(stoker.AlreadyExistsError, match="column c of table t, which others changed meanwhile, exists"):
        table.add_column("c", compute, columns="id")
    assert ran[0].returncode == 0, ran[0].stderr
    assert all(c == [row * 2.0] * WIDTH for row, (c,) in rows_of(table._lake.table("t"), "c").items())


def test_the_same_call_in_two_processes_is_one_commit(table: stoker.Table, tmp_path: Path) -> None:
    ran: list[subprocess.CompletedProcess[str]] = []

    def compute(batch: Any) -> Any:
        if not ran:
            ran.append(run_worker("column_worker.py", table._lake.target, "t", "c", tmp_path / "log"))
        return np.stack([batch["id"] * 2] * WIDTH, axis=1).astype(np.float32)

    added = table.add_column("c", compute, columns=["id"], resume_key="double")
    assert ran[0].returncode == 0, ran[0].stderr
    assert added.version == int(ran[0].stdout) == table.version + 1
    assert all(c == [row * 2.0] * WIDTH for row, (c,) in rows_of(added, "c").items())


def test_streams_of_older_versions_go_on(table: stoker.Table) -> None:
    lake = table._lake
    query = lake.sql("SELECT id, image FROM t")
    expected = query.stream(batch_size=6, seed=3)
    for _ in expected:
        pass
    stream = query.stream(batch_size=6, seed=3)
    batches = iter(stream)
    next(batches)
    state = stream.state_dict()
    first = stream.receipt()

    def compute(batch: Any) -> Any:
        next(batches)
        return batch["id"]

    table.add_column("c", compute, columns="id", batch_size=20)
    for _ in batches:
        pass
    assert stream.receipt() == expected.receipt()
    resumed = lake.resume(state, batch_size=4)
    for _ in resumed:
        pass
    assert [verdict.is_exactly_once for verdict in lake.verify([first, resumed.receipt()])] == [True]


def test_no_other_column_is_read_or_written(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path / "lake"))
    rng = np.random.default_rng(1)
    num_rows, width = 4_096, 2_048
    values = {
        "id": np.arange(num_rows),
        "x": rng.random((num_rows, width), np.float32),
        "other": rng.random((num_rows, 2 * width), np.float32),
    }
    lake.create_table("t", values, rows_per_fragment=1_024)
    measured = run_worker("column_bytes.py", lake.target, "t")
    assert measured.returncode == 0, measured.stderr
    num_read, num_written = json.loads(measured.stdout)
    column_bytes = num_rows * width * 4
    assert column_bytes <= num_read <= 1.05 * column_bytes, (num_read, column_bytes)
    assert column_bytes <= num_written <= 1.05 * column_bytes, (num_written, column_bytes)
    found = lake.sql("SELECT id, x, copy FROM t").stream(batch_size=512)
    for batch in found:
        assert np.array_equal(batch["copy"], batch["x"] * 2)


def test_encoded_images_are_decoded_for_the_function(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    def encoded(row: int) -> bytes:
        buffer = io.BytesIO()
        image.new("RGB", (8, 8), (row, 2 * row, 3 * row)).save(buffer, "png")
        return buffer.getvalue()

    lake = stoker.connect(str(tmp_path))
    files = {"id": np.arange(20), "image": [encoded(row) for row in range(20)]}
    table = lake.create_table("t", files, encoded_images=["image"])
    decode = {"image": stoker.ImageTransform(size=(4, 4))}
    added = table.add_column("mean", lambda batch: batch["image"].mean(axis=(2, 3)), columns="image", decode=decode)
    for row, (mean,) in rows_of(added, "mean").items():
        assert np.allclose(mean, [row, 2 * row, 3 * row]), row


def test_columns_through_a_server(lake_path: str, tmp_path: Path, serve: Callable[..., str]) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", columns_of(range(5)))
    served = stoker.connect(serve(str(tmp_path)))
    with pytest.raises(stoker.InvalidRequestError, match=r"on a connection to the lake itself.*give sql instead"):
        served.table("t").add_column("c", lambda batch: batch["id"], columns="id")


def test_a_cleanup_forgets_journals(table: stoker.Table) -> None:
    def failing(batch: Any) -> Any:
        if 35 in batch["id"]:
            raise RuntimeError("not yet")
        return batch["id"]

    with pytest.raises(stoker.InvalidRequestError):
        table.add_column("c", failing, columns="id", batch_size=5)
    journals = Path(table._lake.target, "_stoker", "columns")
    assert len(list(journals.iterdir())) == 1
    table._lake.execute("VACUUM")
    assert len(list(journals.iterdir())) == 1, "a journal of today may be needed"


def test_features_of_a_model_are_searched(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    example = Path(__file__).parent.parent / "examples" / "add_features.py"
    ran = subprocess.run(
        [sys.executable, str(example), "--lake", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "columns id, image, label, features in version 2" in ran.stdout
    assert {"features": pa.float32()} == {
        field.name: field.type.value_type
        for field in stoker.connect(str(tmp_path)).table("digits").schema
        if field.name == "features"
    }
