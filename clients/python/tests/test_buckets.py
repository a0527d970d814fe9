"""Buckets: rows of similar length that come together."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server, stoker_bin

import stoker

NUM_ROWS = 600
MAX_TOKENS = 256
QUERY = "SELECT id, tokens, name, score, vector FROM texts"


def tokens_of(row: int) -> list[int] | None:
    """Returns the tokens of a row, which name it; one row in fifty is null, one is longer than a bucket."""
    if row % 50 == 7:
        return None
    length = 300 if row % 50 == 49 else row * 13 % 60
    return [row * 1_000 + token for token in range(length)]


def length_of(row: int) -> int:
    return len(tokens_of(row) or [])


def png(row: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8), (row % 256, row // 256, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def texts_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("texts"))
    rows = range(NUM_ROWS)
    columns = {
        "id": pa.array(rows, pa.int64()),
        "tokens": pa.array([tokens_of(row) for row in rows], pa.list_(pa.int32())),
        "name": pa.array([f"row {row}" for row in rows]),
        "score": pa.array([None if row % 3 == 0 else row for row in rows], pa.int32()),
        "vector": pa.array([[row, -row] for row in rows], pa.list_(pa.float32(), 2)),
        "image": pa.array([png(row) for row in rows], pa.binary()),
        "n": pa.array([length_of(row) for row in rows], pa.int32()),
    }
    stoker.connect(path).create_table("texts", pa.table(columns), rows_per_fragment=150)
    return path


@pytest.fixture(scope="module")
def texts_server(texts_path: str) -> Iterator[Server]:
    running = Server(texts_path)
    yield running
    running.stop()


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, texts_path: str, texts_server: Server) -> stoker.Lake:
    """The lake, in process and through a server."""
    return stoker.connect(texts_path if request.param == "in process" else texts_server.url)


def bucket(**options: Any) -> stoker.Bucket:
    return stoker.Bucket("tokens", max_tokens=MAX_TOKENS, **options)


def check_batch(batch: stoker.Batch) -> list[int]:
    """Checks that a batch has ordinary rows within the budget; returns their ids."""
    ids = batch["id"].tolist()
    assert batch.num_rows == len(ids) == len(batch["name"]) == len(batch.row_ids)
    assert [list(tokens) for tokens in batch["tokens"]] == [tokens_of(row) or [] for row in ids]
    assert list(batch["name"]) == [f"row {row}" for row in ids]
    assert batch["vector"].tolist() == [[row, -row] for row in ids]
    assert batch["score"].tolist() == [0 if row % 3 == 0 else row for row in ids]
    assert batch.is_valid("score").tolist() == [row % 3 != 0 for row in ids]
    assert batch.is_valid("tokens").tolist() == [tokens_of(row) is not None for row in ids]
    assert batch.row_ids.tolist() == [(row // 150 << 32) + row % 150 for row in ids]
    padded = len(ids) * max(length_of(row) for row in ids)
    assert padded <= MAX_TOKENS or len(ids) == 1
    return ids


@pytest.mark.filterwarnings("ignore::stoker.NullsWarning")
def test_each_row_is_in_one_bucket(place: stoker.Lake) -> None:
    stream = place.sql(QUERY).stream(seed=3, bucket=bucket())
    assert stream.schema.names == ["id", "tokens", "name", "score", "vector"]
    orders = []
    for _ in range(2):
        batches = list(stream)
        assert len(batches) == len(stream) == stream.num_rows
        orders.append([row for batch in batches for row in check_batch(batch)])
        assert sorted(orders[-1]) == list(range(NUM_ROWS))
        longest = [max(length_of(row) for row in batch["id"]) for batch in batches]
        assert longest != sorted(longest)
        assert longest != sorted(longest, reverse=True)
    assert orders[0] != orders[1]
    assert stream.stats().rows == NUM_ROWS


def padding_share(stream: stoker.Stream) -> float:
    tokens = padded = 0
    for batch in stream:
        lengths = [len(row) for row in batch["tokens"]]
        tokens += sum(lengths)
        padded += len(lengths) * max(lengths)
    return 1 - tokens / padded


@pytest.mark.filterwarnings("ignore::stoker.NullsWarning")
def test_rows_of_buckets_have_less_padding(place: stoker.Lake) -> None:
    query = place.sql("SELECT tokens FROM texts WHERE n < 60")
    bucketed, other = query.stream(seed=1, bucket=bucket()), query.stream(batch_size=8, seed=1)
    assert padding_share(bucketed) < 0.15 < 0.4 < padding_share(other)
    limited = place.sql(QUERY).stream(seed=1, bucket=bucket(max_rows=3))
    assert {batch.num_rows for batch in limited} <= {1, 2, 3}


@pytest.mark.filterwarnings("ignore::stoker.NullsWarning")
def test_a_resume_inside_an_epoch_on_other_ranks_is_exact(place: stoker.Lake) -> None:
    def streams(world_size: int) -> list[stoker.Stream]:
        query = place.sql(QUERY)
        return [
            query.stream(rank=rank, world_size=world_size, seed=5, last_batch="uneven", bucket=bucket())
            for rank in range(world_size)
        ]

    first, rest = streams(3), streams(2)
    (whole,) = streams(1)
    assert {len(stream) for stream in first} == {-(-len(whole) // 3)}
    expected = [batch["id"].tolist() for batch in whole]
    steps = [[batch["id"].tolist() for _, batch in zip(range(7), stream, strict=False)] for stream in first]
    found = [ids for step in zip(*steps, strict=True) for ids in step]
    (state,) = {json.dumps(stream.state_dict()) for stream in first}
    assert len(state) < 1024
    later: list[list[list[int]]] = []
    for stream in rest:
        stream.load_state_dict(state)
        later.append([batch["id"].tolist() for batch in stream])
    longest = max(len(batches) for batches in later)
    found += [batches[step] for step in range(longest) for batches in later if step < len(batches) and batches[step]]
    assert found == expected
    (verdict,) = place.verify([stream.receipt() for stream in [*first, *rest]])
    assert (verdict.num_missing, verdict.num_repeated) == (0, 0)
    resumed = place.resume(state, batch_size=1)
    assert [batch["id"].tolist() for batch in resumed] == expected[21:]
    with pytest.raises(stoker.InvalidRequestError, match="batch_size is 2, but each batch of a rank is one bucket"):
        place.resume(state, batch_size=2)
    with pytest.raises(
        stoker.StateMismatchError, match="bucket: the state has 256 tokens by tokens, the stream has none"
    ):
        place.sql(QUERY).stream(batch_size=8, seed=5).load_state_dict(state)
    smaller = stoker.Bucket("tokens", max_tokens=200)
    with pytest.raises(stoker.StateMismatchError, match="bucket max_tokens: the state has 256, the stream has 200"):
        place.sql(QUERY).stream(seed=5, bucket=smaller).load_state_dict(state)


def test_torch_trains_on_buckets(place: stoker.Lake) -> None:
    torch = pytest.importorskip("torch")
    ragged = {"tokens": stoker.Pad(multiple=8, value=-1, lengths="lengths")}
    query = place.sql("SELECT id, tokens FROM texts WHERE tokens IS NOT NULL")
    loader = query.torch(seed=1, bucket=bucket(multiple=8), ragged=ragged)
    found: list[int] = []
    for batch in loader:
        rows, longest = batch["tokens"].shape
        assert longest % 8 == 0
        assert rows * longest <= MAX_TOKENS or rows == 1
        assert batch["tokens"].dtype == torch.int32
        assert batch["lengths"].tolist() == [length_of(row) for row in batch["id"].tolist()]
        found += batch["tokens"][batch["tokens"] >= 0].tolist()
    assert sorted(found) == sorted(token for row in range(NUM_ROWS) for token in tokens_of(row) or [])
    with pytest.raises(stoker.InvalidRequestError, match="not divided among worker processes: use num_workers=0"):
        query.stream(seed=1, bucket=bucket()).for_worker(0, 2)


def test_numpy_and_transforms_get_rows(place: stoker.Lake) -> None:
    def noisy(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"id": row["id"], "noise": rng.random()}

    def noise(world_size: int, **options: Any) -> dict[int, float]:
        found: dict[int, float] = {}
        for rank in range(world_size):
            loader = place.sql("SELECT id, n FROM texts").numpy(
                seed=2,
                rank=rank,
                world_size=world_size,
                last_batch="uneven",
                bucket=stoker.Bucket("n", max_tokens=MAX_TOKENS),
                transform=stoker.PerRow(noisy, seeded=True),
                **options,
            )
            # The last batch of some ranks has no bucket.
            for batch in filter(None, loader):
                found |= dict(zip(batch["id"].tolist(), batch["noise"].tolist(), strict=True))
        return found

    alone = noise(1)
    assert len(alone) == NUM_ROWS
    assert len(set(alone.values())) == NUM_ROWS, "rows of a bucket have random numbers of their own"
    assert noise(3) == alone
    assert noise(1, epoch=1) != alone


def test_images_are_decoded(place: stoker.Lake) -> None:
    pytest.importorskip("PIL")
    query = place.sql("SELECT id, n, image FROM texts")
    options: dict[str, Any] = {"bucket": stoker.Bucket("n", max_tokens=MAX_TOKENS), "seed": 4, "last_batch": "uneven"}

    def images(transform: stoker.ImageTransform, world_size: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for rank in range(world_size):
            for batch in query.stream(rank=rank, world_size=world_size, decode={"image": transform}, **options):
                assert batch["image"].shape == (batch.num_rows, 3, 8, 8)
                found |= {row: image.tobytes() for row, image in zip(batch["id"].tolist(), batch["image"], strict=True)}
        return found

    plain = stoker.ImageTransform(size=8)
    colours = {row: bytes([row % 256] * 64 + [row // 256] * 64 + [0] * 64) for row in range(NUM_ROWS)}
    assert images(plain, 1) == colours
    jitter = stoker.ImageTransform(size=8, color_jitter=stoker.ColorJitter(brightness=0.9))
    changed = images(jitter, 1)
    assert changed != colours
    assert images(jitter, 3) == changed
    factors = {round(changed[row][0] / (row % 256), 1) for row in range(NUM_ROWS) if row % 256 > 100}
    assert len(factors) > 5, "the rows of a bucket have augmentations of their own"
    with pytest.raises(stoker.InvalidRequestError, match="rows of buckets that cannot be decoded have no substitutes"):
        next(iter(query.stream(decode={"image": plain}, bad_rows="substitute", **options)))


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow"])
def test_loaders_get_rows(place: stoker.Lake, framework: str) -> None:
    pytest.importorskip(framework)
    query = place.sql("SELECT id, n, vector FROM texts")
    options: dict[str, Any] = {"bucket": stoker.Bucket("n", max_tokens=MAX_TOKENS), "seed": 4}
    expected = [batch["id"].tolist() for batch in query.stream(**options)]
    batches = list(getattr(query, framework)(**options))
    assert [np.asarray(batch["id"]).tolist() for batch in batches] == expected
    assert all(np.asarray(batch["vector"]).shape == (len(batch["id"]), 2) for batch in batches)


def test_no_rows_and_one_row(place: stoker.Lake) -> None:
    empty = place.sql("SELECT id, tokens FROM texts WHERE id < 0").stream(bucket=bucket())
    assert (len(empty), list(empty)) == (0, [])
    (batch,) = place.sql("SELECT id, tokens FROM texts WHERE id = 49").stream(bucket=bucket())
    assert (batch.num_rows, batch["id"].tolist(), len(batch["tokens"][0])) == (1, [49], 300)
    padded = place.sql("SELECT id, tokens FROM texts WHERE id = 49").stream(bucket=bucket(), rank=1, world_size=2)
    (batch,) = padded
    assert (batch["id"].tolist(), batch.num_valid) == ([49], 0)


def test_rows_that_are_too_long_are_refused_if_asked(place: stoker.Lake) -> None:
    strict = bucket(longer="error")
    words = r'row 0x31 of texts@\d+ has 300 tokens; a bucket has at most 256; leave longer rows out .* longer="alone"'
    # A server leaves out of messages what follows a word such as token and a colon.
    with pytest.raises(stoker.InvalidRequestError, match=f'bucket column "tokens":…? {words}'):
        place.sql(QUERY).stream(seed=3, bucket=strict)
    with pytest.raises(stoker.InvalidRequestError, match=r'column "n": row 0x9 of texts@\d+ has 57 tokens, 60 when'):
        place.sql("SELECT id, n FROM texts WHERE id >= 9").stream(
            bucket=stoker.Bucket("n", max_tokens=57, multiple=20, longer="error")
        )
    query = place.sql("SELECT id, n FROM texts WHERE n <= 256")
    ids = [
        [
            batch["id"].tolist()
            for batch in query.stream(seed=3, bucket=stoker.Bucket("n", max_tokens=256, longer=longer))
        ]
        for longer in ("alone", "error")
    ]
    assert ids[0] == ids[1]
    assert sorted(row for bucket_ids in ids[0] for row in bucket_ids) == [
        row for row in range(NUM_ROWS) if length_of(row) <= MAX_TOKENS
    ]
    state = query.stream(seed=3, bucket=stoker.Bucket("n", max_tokens=256)).state_dict()
    with pytest.raises(stoker.StateMismatchError, match="bucket longer: the state has alone, the stream has error"):
        query.stream(seed=3, bucket=stoker.Bucket("n", max_tokens=256, longer="error")).load_state_dict(state)


def test_buckets_that_cannot_be_are_refused(place: stoker.Lake) -> None:
    def refused(match: str, **options: Any) -> None:
        with pytest.raises(stoker.InvalidRequestError, match=match):
            place.sql(QUERY).stream(**options)

    refused("bucket is a int; it must be a stoker.Bucket", bucket=3)
    refused("no such column; it has id, tokens, name, score, vector", bucket=stoker.Bucket("words", max_tokens=8))
    refused("it is Utf8; buckets are made by the lengths of lists", bucket=stoker.Bucket("name", max_tokens=8))
    refused("batch_size is 8, but each batch of a rank is one bucket", bucket=bucket(), batch_size=8)
    refused("global_batch_size is 8, but each batch", bucket=bucket(), global_batch_size=8)
    refused("another number of buckets; leave weight or bucket out, or mix queries", bucket=bucket(), weight="id")
    refused("leave pack or bucket out", bucket=bucket(), pack=stoker.Pack("tokens", length=8))
    for match, arguments in [
        ("max_tokens is 0; it must be a whole number from 1", {"column": "tokens", "max_tokens": 0}),
        ("max_rows is 0; it must be", {"column": "tokens", "max_tokens": 8, "max_rows": 0}),
        ("multiple is 9; it must be", {"column": "tokens", "max_tokens": 8, "multiple": 9}),
        ("column is a int", {"column": 7, "max_tokens": 8}),
        ('longer is \'cut\'; it must be "alone" or "error"', {"column": "n", "max_tokens": 8, "longer": "cut"}),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=match):
            stoker.Bucket(**arguments)


def test_the_command_line_streams_buckets(texts_path: str) -> None:
    command = [stoker_bin(), "stream", QUERY, "--lake", texts_path, "--json"]
    command += ["--bucket", "tokens", "--max-tokens", str(MAX_TOKENS)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    buckets = stoker.connect(texts_path).sql(QUERY).stream(bucket=bucket())
    assert (report["rows"], report["steps"]) == (NUM_ROWS, len(buckets))
    longer = subprocess.run([*command, "--longer", "error"], check=False, capture_output=True, text=True)
    assert longer.returncode != 0
    assert "has 300 tokens; a bucket has at most 256" in longer.stderr
    both = subprocess.run([*command, "--batch-size", "4"], check=False, capture_output=True, text=True)
    assert both.returncode != 0
    assert "each batch of a rank is one bucket" in both.stderr
