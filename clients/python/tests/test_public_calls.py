"""Tries every public call that has a parameter or reads a file with hostile values.

A call either accepts the value, or raises an exception that its caller can act on: one of Stoker's kinds other than a
bug, or Python's own for a wrong type or a missing file. It does not panic or hang, and its message has at most 2,000
characters.
"""

from __future__ import annotations

import io
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server, make_columns
from PIL import Image

import stoker

pytest.importorskip("torch")

#: The values that are passed for each parameter, by their descriptions.
VALUES: dict[str, Any] = {
    "None": None,
    "an object": object(),
    "a dict": {"a": 1},
    "NaN": math.nan,
    "a negative number": -1,
    "2^64": 2**64,
    "10^8": 10**8,
    "an empty text": "",
    "an empty list": [],
    "10 MB of text": "x" * 10_000_000,
    "odd Unicode": "\u202ee\u0301\U0001f525\0\n",
    "a lone surrogate": "a\ud800",
    "bytes": b"\xff\0\xfe",
    "a list of odd things": [None, math.nan, "x", object()],
    "a missing file": "/nonexistent/of/stoker",
}

#: Python's own exceptions that a caller can act on.
ACTED_ON = (TypeError, UnicodeError, FileNotFoundError, NotADirectoryError)

SAMPLES = "SELECT id, image, label, emb FROM samples"
BOTH, LOCAL = "both", "local"

Call = Callable[[stoker.Lake, Any], Any]


def first_of(loader: Any) -> Any:
    with loader if isinstance(loader, stoker.Stream) else loader.stream:
        return next(iter(loader), None)


def stream_with(name: str, **options: Any) -> Call:
    base: dict[str, Any] = {} if name == "global_batch_size" else {"batch_size": 4}
    return lambda lake, value: first_of(lake.sql(SAMPLES).stream(**{**base, **options, name: value}))


def torch_with(name: str) -> Call:
    return lambda lake, value: first_of(lake.sql(SAMPLES).torch(batch_size=4, **{name: value}))


def numpy_with(name: str) -> Call:
    return lambda lake, value: first_of(lake.sql(SAMPLES).numpy(batch_size=4, **{name: value}))


def pad_with(name: str) -> Call:
    def call(lake: stoker.Lake, value: Any) -> Any:
        padding = stoker.Pad(**{name: value})
        return first_of(
            lake.sql("SELECT make_array(id, label) AS pair FROM samples").numpy(batch_size=4, ragged=padding)
        )

    return call


def batch_with(method: str) -> Call:
    return lambda lake, value: getattr(first_of(lake.sql(SAMPLES).stream(batch_size=4)), method)(value)


def resume_with(name: str) -> Call:
    def call(lake: stoker.Lake, value: Any) -> Any:
        state = lake.sql(SAMPLES).stream(batch_size=4).state_dict()
        return first_of(lake.resume(state, **{"batch_size": 4, name: value}))

    return call


def compact_with(name: str) -> Call:
    return lambda lake, value: lake.table("samples").compact(**{name: value})


def transform_with(name: str) -> Call:
    def call(lake: stoker.Lake, value: Any) -> Any:
        transform = stoker.ImageTransform(**{"size": 8, name: value})
        return first_of(lake.sql("SELECT photo FROM photos").stream(batch_size=2, decode={"photo": transform}))

    return call


def state_with(field: str) -> Call:
    def call(lake: stoker.Lake, value: Any) -> Any:
        stream = lake.sql(SAMPLES).stream(batch_size=4)
        stream.load_state_dict({**stream.state_dict(), field: value})
        return first_of(stream)

    return call


def column_with(name: str) -> Call:
    def call(lake: stoker.Lake, value: Any) -> Any:
        options = {"name": "more", "function": lambda batch: batch["id"], "columns": ["id"], "resume": False}
        return lake.table("samples").add_column(**{**options, name: value})

    return call


def connect_with(name: str) -> Call:
    return lambda lake, value: stoker.connect(lake.target, **{name: value}).tables()


STREAM_OPTIONS = [
    "batch_size", "global_batch_size", "seed", "epoch", "shuffle", "last_batch", "drop_last", "memory_budget_bytes",
    "shuffle_window_bytes", "block_bytes", "num_lanes", "order_version", "bad_rows", "verify", "retry_budget_secs",
    "compression", "run_id", "decode", "mesh", "process_group", "evaluation",
]  # fmt: skip
RESUME_OPTIONS = ["batch_size", "last_batch", "memory_budget_bytes", "bad_rows", "retry_budget_secs", "compression"]
COLUMN_OPTIONS = [
    "name", "function", "columns", "where", "params", "data_type", "replace", "batch_size", "batch_format", "decode",
    "resume_key", "resume", "checkpoint_secs", "page_bytes", "progress",
]  # fmt: skip
CONNECT_OPTIONS = [
    "token", "tls_ca", "tls_cert", "tls_key", "storage_options", "retry_budget_secs", "num_endpoints",
    "memory_budget_bytes", "cache_dir", "cache_bytes", "direct_io",
]  # fmt: skip
TRANSFORM_OPTIONS = [
    "size", "fit", "crop", "shorter_side", "random_resized_crop", "horizontal_flip", "channels", "layout", "dtype",
    "mean", "std", "interpolation", "fill", "image_bytes_max",
]  # fmt: skip
STATE_FIELDS = ["version", "stream_id", "query", "num_rows", "epoch", "position", "step", "log", "order", "snapshots"]
TORCH_OPTIONS = ["device", "transform", "collate_fn", "valid_key", "int64_columns", "ragged", "null_masks"]
NUMPY_OPTIONS = ["transform", "valid_key", "ragged", "null_masks"]
PAD_OPTIONS = ["value", "multiple", "length", "mask", "lengths"]

COMPACT_OPTIONS = ["rows_per_fragment", "mb_per_fragment", "deleted_percent", "rate_mb_per_sec", "progress"]

#: Each call by its name: a function that passes a value to the call, and whether a server supports the call too.
CALLS: dict[str, tuple[Call, str]] = {
    "connect(target)": (lambda _, value: stoker.connect(value).tables(), BOTH),
    **{f"connect({name})": (connect_with(name), BOTH) for name in CONNECT_OPTIONS},
    **{f"Pad({name})": (pad_with(name), BOTH) for name in PAD_OPTIONS},
    **{f"Batch.{name}": (batch_with(name), BOTH) for name in ("is_valid", "jagged", "padded")},
    "Lake.table(name)": (lambda lake, value: lake.table(value), BOTH),
    "Lake.table(version)": (lambda lake, value: lake.table("samples", version=value), BOTH),
    "Lake.table(tag)": (lambda lake, value: lake.table("samples", tag=value), BOTH),
    "Lake.sql(sql)": (lambda lake, value: lake.sql(value).to_arrow(), BOTH),
    "Lake.sql(params)": (lambda lake, value: lake.sql("SELECT 1", params=value).to_arrow(), BOTH),
    "Lake.sql(one parameter)": (lambda lake, value: lake.sql("SELECT $1 AS x", params=[value]).to_arrow(), BOTH),
    "Lake.sql(compared)": (
        lambda lake, value: lake.sql("SELECT id FROM samples WHERE id < $1", params=[value]).to_arrow(),
        BOTH,
    ),
    "Lake.sql(vector)": (
        lambda lake, value: lake.sql(
            "SELECT id FROM vector_search(samples, emb, $1, k => 3)", params=[value]
        ).to_arrow(),
        BOTH,
    ),
    "Lake.sql(approximate)": (
        lambda lake, value: lake.sql(
            "SELECT id FROM samples ORDER BY emb <-> [1, 2, 3, 4] LIMIT 3", approximate=value
        ).to_arrow(),
        BOTH,
    ),
    "Lake.execute(sql)": (lambda lake, value: lake.execute(value), BOTH),
    "Lake.execute(params)": (lambda lake, value: lake.execute("OPTIMIZE INDEX ON samples", params=value), BOTH),
    "Lake.execute(one parameter)": (
        lambda lake, value: lake.execute("OPTIMIZE INDEX ON samples", params=[value]),
        BOTH,
    ),
    "Lake.execute(progress)": (lambda lake, value: lake.execute("OPTIMIZE INDEX ON samples", progress=value), BOTH),
    "Lake.resume(state)": (lambda lake, value: lake.resume(value, batch_size=4), BOTH),
    **{f"Lake.resume({name})": (resume_with(name), BOTH) for name in RESUME_OPTIONS},
    "Lake.run(run_id)": (lambda lake, value: lake.run(value), BOTH),
    "Lake.verify(receipts)": (lambda lake, value: lake.verify(value), BOTH),
    "Lake.verify(one receipt)": (lambda lake, value: lake.verify([value]), BOTH),
    "Lake.create_table(name)": (lambda lake, value: lake.create_table(value, {"a": [1]}), LOCAL),
    "Lake.create_table(data)": (lambda lake, value: lake.create_table("fresh", value), LOCAL),
    "Lake.create_table(column)": (lambda lake, value: lake.create_table("fresh", {"a": value}), LOCAL),
    "Lake.create_table(column name)": (lambda lake, value: lake.create_table("fresh", {value: [1]}), LOCAL),
    "Lake.create_table(value)": (lambda lake, value: lake.create_table("fresh", {"a": [value]}), LOCAL),
    "Lake.create_table(mode)": (lambda lake, value: lake.create_table("fresh", {"a": [1]}, mode=value), LOCAL),
    "Lake.create_table(rows)": (lambda lake, value: lake.create_table("fresh", iter([{"a": 1}, value])), LOCAL),
    "Lake.create_table(schema)": (lambda lake, value: lake.create_table("fresh", [{"a": 1}], schema=value), LOCAL),
    "Lake.create_table(key)": (lambda lake, value: lake.create_table("fresh", [{"a": 1}], key=value), LOCAL),
    "Lake.ingest(sources)": (lambda lake, value: lake.ingest(value, "fresh", dry_run=True), LOCAL),
    "Lake.ingest(table)": (lambda lake, value: lake.ingest("/nonexistent/of/stoker", value), LOCAL),
    "Lake.ingest(kind)": (lambda lake, value: lake.ingest("/nonexistent/of/stoker", "fresh", kind=value), LOCAL),
    "Lake.ingest(progress)": (lambda lake, value: lake.ingest("/nonexistent", "fresh", progress=value), LOCAL),
    "Lake.ingest(rename)": (lambda lake, value: lake.ingest("/nonexistent", "fresh", rename=value), LOCAL),
    "Lake.create_table(encoded_images)": (
        lambda lake, value: lake.create_table("fresh", {"a": [b"1"]}, encoded_images=value),
        LOCAL,
    ),
    "Lake.create_table(an image)": (
        lambda lake, value: lake.create_table("fresh", {"a": [value]}, encoded_images=["a"]),
        LOCAL,
    ),
    "Lake.create_table(rows_per_fragment)": (
        lambda lake, value: lake.create_table("fresh", {"a": [1]}, rows_per_fragment=value),
        LOCAL,
    ),
    "Table.append(data)": (lambda lake, value: lake.table("samples").append(value), LOCAL),
    "Table.append(column)": (lambda lake, value: lake.table("photos").append({"photo": value}), LOCAL),
    "Table.tag(name)": (lambda lake, value: lake.table("samples").tag(value), BOTH),
    "Table.create_branch(name)": (lambda lake, value: lake.table("samples").create_branch(value), BOTH),
    "Table.drop_branch(name)": (lambda lake, value: lake.table("samples").drop_branch(value), BOTH),
    "Lake.drop_table(name)": (lambda lake, value: lake.drop_table(value), BOTH),
    "Lake.create_view(name)": (lambda lake, value: lake.create_view(value, SAMPLES, replace=True), BOTH),
    "Lake.create_view(query)": (lambda lake, value: lake.create_view("seen", value, replace=True), BOTH),
    "Lake.drop_view(name)": (lambda lake, value: lake.drop_view(value), BOTH),
    "Table.delete(where)": (lambda lake, value: lake.table("samples").delete(value), BOTH),
    "Table.delete(params)": (lambda lake, value: lake.table("samples").delete("id = $1", value), BOTH),
    "Table.delete(one parameter)": (lambda lake, value: lake.table("samples").delete("id = $1", [value]), BOTH),
    "Table.update(values)": (lambda lake, value: lake.table("samples").update(value), BOTH),
    "Table.update(one value)": (lambda lake, value: lake.table("samples").update({"name": value}, "id = 3"), BOTH),
    "Table.update(one tensor)": (lambda lake, value: lake.table("samples").update({"image": value}, "id = 3"), BOTH),
    "Table.update(column)": (lambda lake, value: lake.table("samples").update({value: 1}, "id = 3"), BOTH),
    "Table.update(where)": (lambda lake, value: lake.table("samples").update({"label": 1}, value), BOTH),
    "Table.update(expressions)": (lambda lake, value: lake.table("samples").update(expressions=value), BOTH),
    "Table.update(one expression)": (
        lambda lake, value: lake.table("samples").update(where="id = 3", expressions={"label": value}),
        BOTH,
    ),
    "Table.merge(source)": (lambda lake, value: lake.table("samples").merge(value, "id"), BOTH),
    "Table.merge(one value)": (
        lambda lake, value: lake.table("samples").merge(
            {"id": [value], "name": ["x"]}, "id", when_not_matched="ignore"
        ),
        BOTH,
    ),
    "Table.merge(on)": (lambda lake, value: lake.table("samples").merge({"id": [1], "name": ["x"]}, value), BOTH),
    "Table.merge(when_matched)": (
        lambda lake, value: lake.table("samples").merge(
            {"id": [1], "name": ["x"]}, "id", when_matched=value, when_not_matched="ignore"
        ),
        BOTH,
    ),
    "Table.merge(when_not_matched)": (
        lambda lake, value: lake.table("samples").merge({"id": [1], "name": ["x"]}, "id", when_not_matched=value),
        BOTH,
    ),
    "Table.add_column(name)": (lambda lake, value: lake.table("photos").add_column(value, "INT"), BOTH),
    "Table.add_column(data_type)": (lambda lake, value: lake.table("photos").add_column("more", value), BOTH),
    "Table.add_column(value)": (lambda lake, value: lake.table("photos").add_column("more", value=value), BOTH),
    "Table.add_column(one parameter)": (
        lambda lake, value: lake.table("photos").add_column("more", "TEXT", value="$1", params=[value]),
        BOTH,
    ),
    **{f"Table.add_column({name}, of a function)": (column_with(name), LOCAL) for name in COLUMN_OPTIONS},
    "Table.add_column(what a function returns)": (
        lambda lake, value: lake.table("samples").add_column("more", lambda batch: value, columns="id", resume=False),
        LOCAL,
    ),
    "Table.cast_column(name)": (lambda lake, value: lake.table("photos").cast_column(value, "TEXT"), BOTH),
    "Table.cast_column(data_type)": (lambda lake, value: lake.table("photos").cast_column("photo", value), BOTH),
    "Table.cast_column(using)": (
        lambda lake, value: lake.table("photos").cast_column("photo", "TEXT", using=value),
        BOTH,
    ),
    "Table.restore(version)": (lambda lake, value: lake.table("photos").restore(value), BOTH),
    "Table.restore(tag)": (lambda lake, value: lake.table("photos").restore(tag=value), BOTH),
    "Table.drop_column(names)": (lambda lake, value: lake.table("samples").drop_column(value), BOTH),
    "Table.rename_column(name)": (lambda lake, value: lake.table("photos").rename_column(value, "other"), BOTH),
    "Table.rename_column(new_name)": (lambda lake, value: lake.table("samples").rename_column("emb", value), LOCAL),
    "Table.create_index(column)": (lambda lake, value: lake.table("samples").create_index(value, kind="btree"), BOTH),
    "Table.create_index(kind)": (lambda lake, value: lake.table("samples").create_index("id", kind=value), BOTH),
    "Table.create_index(name)": (
        lambda lake, value: lake.table("samples").create_index("id", kind="btree", name=value),
        BOTH,
    ),
    "Table.create_index(metric)": (
        lambda lake, value: lake.table("samples").create_index("emb", kind="ivf_flat", metric=value),
        BOTH,
    ),
    "Table.create_index(num_partitions)": (
        lambda lake, value: lake.table("samples").create_index("emb", kind="ivf_flat", num_partitions=value),
        BOTH,
    ),
    "Table.create_index(num_sub_vectors)": (
        lambda lake, value: lake.table("samples").create_index("emb", kind="ivf_pq", num_sub_vectors=value),
        BOTH,
    ),
    **{f"Table.compact({name})": (compact_with(name), BOTH) for name in COMPACT_OPTIONS},
    "Table.drop_index(name)": (lambda lake, value: lake.table("samples").drop_index(value), BOTH),
    "Table.optimize_indexes(name)": (lambda lake, value: lake.table("samples").optimize_indexes(value), BOTH),
    "Table.quarantine(row_ids)": (lambda lake, value: lake.table("samples").quarantine(value), LOCAL),
    "Table.quarantine(one row)": (lambda lake, value: lake.table("samples").quarantine([value]), LOCAL),
    "Table.quarantine(reason)": (lambda lake, value: lake.table("samples").quarantine([0], value), LOCAL),
    "Query.to_arrow(compression)": (lambda lake, value: lake.sql(SAMPLES).to_arrow(compression=value), BOTH),
    "Query.to_reader(compression)": (
        lambda lake, value: lake.sql(SAMPLES).to_reader(compression=value).read_all(),
        BOTH,
    ),
    "Query.to_parquet(path)": (lambda lake, value: lake.sql(SAMPLES).to_parquet(value), BOTH),
    "Query.to_parquet(compression)": (
        lambda lake, value: lake.sql(SAMPLES).to_parquet(os.devnull, compression=value),
        BOTH,
    ),
    "Query.to_parquet(row_group_rows)": (
        lambda lake, value: lake.sql(SAMPLES).to_parquet(os.devnull, row_group_rows=value),
        BOTH,
    ),
    "Query.class_balance(column)": (lambda lake, value: repr(lake.sql(SAMPLES).class_balance(value)), BOTH),
    "Query.image_grid(column)": (lambda lake, value: lake.sql(SAMPLES).image_grid(value), BOTH),
    **{
        f"Query.image_grid({name})": (
            lambda lake, value, name=name: lake.sql(SAMPLES).image_grid("image", **{name: value})._repr_html_(),
            BOTH,
        )
        for name in ("rows", "columns", "label")
    },
    **{f"Query.stream({name})": (stream_with(name), BOTH) for name in STREAM_OPTIONS},
    "Query.stream(rank)": (stream_with("rank", world_size=2), BOTH),
    "Query.stream(world_size)": (stream_with("world_size", rank=0), BOTH),
    "Query.stream(decode_threads)": (
        lambda lake, value: first_of(
            lake.sql("SELECT photo FROM photos").stream(
                batch_size=2, decode={"photo": stoker.ImageTransform(size=8)}, decode_threads=value
            )
        ),
        BOTH,
    ),
    "Query.stream(batch_size, padded)": (stream_with("batch_size", last_batch="pad"), BOTH),
    "Query.stream(batch_size, ranks)": (stream_with("batch_size", rank=1, world_size=3), BOTH),
    "Query.stream(a parameter as a column)": (
        lambda lake, value: first_of(lake.sql("SELECT id, $1 AS x FROM samples", params=[value]).stream(batch_size=4)),
        BOTH,
    ),
    **{f"Query.torch({name})": (torch_with(name), BOTH) for name in TORCH_OPTIONS},
    **{f"Query.numpy({name})": (numpy_with(name), BOTH) for name in NUMPY_OPTIONS},
    **{f"ImageTransform({name})": (transform_with(name), BOTH) for name in TRANSFORM_OPTIONS},
    "mix(weights)": (lambda _, value: stoker.mix(value), BOTH),
    "mix(one weight)": (
        lambda lake, value: first_of(stoker.mix([(lake.sql(SAMPLES), value)]).stream(batch_size=4)),
        BOTH,
    ),
    "mix(stop)": (
        lambda lake, value: first_of(stoker.mix({lake.sql(SAMPLES): 1}, stop=value).stream(batch_size=4)),
        BOTH,
    ),
    "mix(epoch_rows)": (
        lambda lake, value: first_of(stoker.mix({lake.sql(SAMPLES): 1}, epoch_rows=value).stream(batch_size=4)),
        BOTH,
    ),
    "tensor_shape(field)": (lambda _, value: stoker.tensor_shape(value), LOCAL),
    "Stream.load_state_dict(state)": (
        lambda lake, value: lake.sql(SAMPLES).stream(batch_size=4).load_state_dict(value),
        BOTH,
    ),
    **{f"Stream.load_state_dict({field})": (state_with(field), BOTH) for field in STATE_FIELDS},
    "Stream.set_epoch(epoch)": (lambda lake, value: lake.sql(SAMPLES).stream(batch_size=4).set_epoch(value), BOTH),
    "Stream.skip(steps)": (lambda lake, value: lake.sql(SAMPLES).stream(batch_size=4).skip(value), BOTH),
    "Stream.passes(convert)": (
        lambda lake, value: next(lake.sql(SAMPLES).stream(batch_size=4).passes(value), None),
        BOTH,
    ),
    "Stream.for_worker(worker)": (
        lambda lake, value: lake.sql(SAMPLES).stream(batch_size=4).for_worker(value, 2),
        BOTH,
    ),
    "Stream.for_worker(num_workers)": (
        lambda lake, value: lake.sql(SAMPLES).stream(batch_size=4).for_worker(0, value),
        BOTH,
    ),
    "Stream.set_weights(weights)": (
        lambda lake, value: stoker.mix({lake.sql(SAMPLES): 1}).stream(batch_size=4).set_weights(value),
        BOTH,
    ),
    "Stream.set_weights(one weight)": (
        lambda lake, value: stoker.mix({lake.sql(SAMPLES): 1}).stream(batch_size=4).set_weights([value]),
        BOTH,
    ),
    "Run.batch(step)": (lambda lake, value: lake.run("logged").batch(value), BOTH),
    "Run.rows(first_step)": (lambda lake, value: lake.run("logged").rows(value), BOTH),
    "Run.rows(last_step)": (lambda lake, value: lake.run("logged").rows(0, value), BOTH),
}


def photo() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template")
    lake = stoker.connect(str(path))
    lake.create_table("samples", make_columns(40))
    lake.create_table("photos", {"photo": [photo()] * 4}, encoded_images=["photo"])
    list(lake.sql(SAMPLES).stream(batch_size=8, run_id="logged", run_log=True))
    return path


@pytest.fixture(scope="module")
def server(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # A lake of its own: hostile values leave row sets of hundreds of MB in it, which nobody should copy.
    served = tmp_path_factory.mktemp("served") / "lake"
    shutil.copytree(template, served)
    running = Server(str(served), {"STOKER_ALLOW_WRITES": "true"})
    yield running
    assert running.process.poll() is None, "the server lives on"
    running.process.terminate()
    assert running.process.stdout is not None
    log = running.process.stdout.read()
    assert running.process.wait(timeout=60) == 0, log[-3000:]
    assert "panicked" not in log


def outcome(call: Call, lake: stoker.Lake, value: Any) -> str | None:
    """Makes a call with a value; returns what is wrong with its outcome, or `None` if nothing is."""
    try:
        call(lake, value)
    except stoker.InternalError as failed:
        return f"a bug: {str(failed)[:300]}"
    except (stoker.StokerError, *ACTED_ON) as refused:
        text = str(refused)
        if len(text) > 2_000:
            return f"a message of {len(text)} characters: {text[:100]}…"
        if "Error(" in text or "panicked" in text or not text:
            return f"not for people: {text[:300]}"
    except BaseException as failed:
        return f"{type(failed).__name__}: {str(failed)[:300]}"
    return None


@pytest.mark.parametrize("name", CALLS)
def test_hostile_values(name: str, template: Path, tmp_path: Path, server: Server) -> None:
    call, doors = CALLS[name]
    wrong = []
    for described, value in VALUES.items():
        for door in ["in process", *(["through a server"] if doors == BOTH else [])]:
            if door == "in process":
                shutil.rmtree(tmp_path / "lake", ignore_errors=True)
                shutil.copytree(template, tmp_path / "lake")
                lake = stoker.connect(str(tmp_path / "lake"))
            else:
                lake = stoker.connect(server.url)
            problem = outcome(call, lake, value)
            if problem:
                wrong.append(f"{name} with {described}, {door}: {problem}")
    shutil.rmtree(tmp_path / "lake", ignore_errors=True)
    assert not wrong, "\n".join(wrong)


def test_every_public_call_is_in_the_table() -> None:
    """The table has an entry for every public call with parameters, so that no new call goes untried."""
    import inspect

    known = " ".join(CALLS)
    no_value = {"self", "options", "lake", "wanted"}
    untried = []
    for owner in (stoker.Lake, stoker.Table, stoker.Query, stoker.Run, stoker.Stream, stoker):
        prefix = "" if owner is stoker else f"{owner.__name__}."
        members = (
            ("connect", "mix", "tensor_shape") if owner is stoker else [n for n in vars(owner) if not n.startswith("_")]
        )
        for member in members:
            function = inspect.unwrap(getattr(owner, member)) if callable(getattr(owner, member)) else None
            if function is None:
                continue
            parameters = set(inspect.signature(function).parameters) - no_value
            if parameters and f"{prefix}{member}(" not in known:
                untried.append(f"{prefix}{member}({', '.join(sorted(parameters))})")
    assert not untried


FILES = {"missing": None, "empty": b"", "truncated": b"-----BEGIN CERT", "10 MB": b"x" * 10_000_000}


@pytest.mark.parametrize("kind", FILES)
def test_files_of_users(kind: str, template: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if FILES[kind] is not None:
        file.write_bytes(FILES[kind])
    lake = stoker.connect(str(template))
    calls: dict[str, Call] = {
        "connect(tls_ca)": lambda _, path: stoker.connect("grpc+tls://127.0.0.1:1", tls_ca=path, retry_budget_secs=0),
        "connect(cache_dir)": lambda _, path: stoker.connect("s3://bucket/lake", cache_dir=path),
        "connect(target)": lambda _, path: stoker.connect(path).tables(),
        "Lake.resume": lambda lake, path: lake.resume(Path(path).read_bytes().decode()[:99], batch_size=4),
        "Lake.create_table": lambda lake, path: lake.create_table("x", pa.OSFile(path)),
    }
    wrong = [f"{name}: {problem}" for name, call in calls.items() if (problem := outcome(call, lake, str(file)))]
    assert not wrong, "\n".join(wrong)
