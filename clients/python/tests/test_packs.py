"""Packs: sequences of one length that are filled with whole documents."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server, stoker_bin

import stoker

NUM_DOCUMENTS = 400
LENGTH = 128
QUERY = "SELECT id, tokens, mask, source FROM docs"


def tokens_of(document: int) -> list[int]:
    """Returns the tokens of a document, each of which names it; every twentieth is longer than a pack."""
    length = 300 if document % 20 == 19 else document * 13 % 60
    return [document * 1_000 + token for token in range(length)]


@pytest.fixture(scope="module")
def documents_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("documents"))
    documents = range(NUM_DOCUMENTS)
    columns = {
        "id": pa.array(documents, pa.int64()),
        "tokens": pa.array([tokens_of(document) for document in documents], pa.list_(pa.int32())),
        "mask": pa.array([[True] * len(tokens_of(document)) for document in documents], pa.list_(pa.bool_())).cast(
            pa.list_(pa.int8())
        ),
        "source": pa.array([f"site {document % 3}" for document in documents]),
        "n": pa.array([len(tokens_of(document)) for document in documents], pa.int32()),
    }
    stoker.connect(path).create_table("docs", pa.table(columns), rows_per_fragment=150)
    return path


@pytest.fixture(scope="module")
def documents_server(documents_path: str) -> Iterator[Server]:
    running = Server(documents_path)
    yield running
    running.stop()


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, documents_path: str, documents_server: Server) -> stoker.Lake:
    """The lake, in process and through a server."""
    return stoker.connect(documents_path if request.param == "in process" else documents_server.url)


def pack(**options: object) -> stoker.Pack:
    return stoker.Pack(["tokens", "mask"], length=LENGTH, pad=-1, **options)


def check_tokens(tokens: list[int]) -> None:
    assert sorted(tokens) == sorted(token for document in range(NUM_DOCUMENTS) for token in tokens_of(document))


def test_each_token_is_in_one_pack(place: stoker.Lake) -> None:
    stream = place.sql(QUERY).stream(batch_size=8, seed=3, pack=pack())
    all_tokens: list[int] = []
    for batch in stream:
        tokens, documents, positions = batch["tokens"], batch["document_ids"], batch["position_ids"]
        assert tokens.shape == documents.shape == positions.shape == batch["mask"].shape
        assert (tokens.dtype, documents.dtype) == (np.int32, np.int32)
        np.testing.assert_array_equal(tokens == -1, documents == 0)
        np.testing.assert_array_equal(batch["mask"], np.where(documents > 0, 1, -1))
        for row in range(len(tokens)):
            ends, ids = batch["cu_seqlens"][row], batch["id"][row]
            assert ends[0] == 0
            assert ends[-1] == LENGTH
            for index, document in enumerate(ids):
                inside = slice(ends[index], ends[index + 1])
                np.testing.assert_array_equal(tokens[row, inside] // 1_000, document)
                np.testing.assert_array_equal(np.diff(tokens[row, inside]), 1)
                np.testing.assert_array_equal(documents[row, inside], index + 1)
                np.testing.assert_array_equal(positions[row, inside], np.arange(ends[index + 1] - ends[index]))
                if document % 20 != 19:
                    assert tokens[row, inside].tolist() == tokens_of(document), "a short document is cut"
            assert list(batch["source"][row]) == [f"site {document % 3}" for document in ids]
            assert len(batch["document_row_ids"][row]) == len(ids)
        all_tokens += tokens[documents > 0].tolist()
    check_tokens(all_tokens)
    filled = len(all_tokens) / (stream.num_rows * LENGTH)
    assert filled > 0.97, f"{filled} of the last packs and the others are filled"


def test_a_resume_inside_an_epoch_on_other_ranks_is_exact(place: stoker.Lake) -> None:
    def streams(world_size: int) -> list[stoker.Stream]:
        query = place.sql("SELECT id, tokens, mask, n FROM docs")
        options = {"global_batch_size": 12, "seed": 5, "pack": pack(lengths="n"), "world_size": world_size}
        return [query.stream(rank=rank, **options) for rank in range(world_size)]

    def tokens(batch: stoker.Batch) -> list[int]:
        return batch["tokens"][batch.valid][batch["document_ids"][batch.valid] > 0].tolist()

    first, rest = streams(3), streams(2)
    assert {len(stream) for stream in [*first, *rest]} == {len(streams(1)[0])}
    found = [token for stream in first for _, batch in zip(range(4), stream, strict=False) for token in tokens(batch)]
    (state,) = {json.dumps(stream.state_dict()) for stream in first}
    assert len(state) < 1024
    for stream in rest:
        stream.load_state_dict(state)
        found += [token for batch in stream for token in tokens(batch)]
    check_tokens(found)
    (verdict,) = place.verify([stream.receipt() for stream in [*first, *rest]])
    assert (verdict.num_missing, verdict.num_repeated) == (0, 0)
    query, longer = place.sql("SELECT id, tokens, mask, n FROM docs"), stoker.Pack("tokens", length=256, lengths="n")
    for other, words in [
        (
            None,
            "pack: the state has tokens, mask in 128 tokens, padded with -1, lengths in n, the stream has none;",
        ),
        (longer, "pack columns: the state has tokens, mask, the stream has tokens; pack length: the state has 128, "),
    ]:
        with pytest.raises(stoker.StateMismatchError, match=words):
            query.stream(batch_size=8, seed=5, pack=other).load_state_dict(state)
    assert place.resume(state, batch_size=8).num_rows == first[0].num_rows


def test_torch_trains_on_packs(place: stoker.Lake) -> None:
    torch = pytest.importorskip("torch")
    loader = place.sql(QUERY).torch(batch_size=8, seed=1, pack=pack(), ragged={"cu_seqlens": "jagged"})
    found: list[int] = []
    for batch in loader:
        assert batch["tokens"].shape[1:] == (LENGTH,)
        assert batch["tokens"].dtype == torch.int32
        assert batch["cu_seqlens"].is_nested
        labels = batch["tokens"].masked_fill(batch["document_ids"] == 0, -100)
        found += labels[labels >= 0].tolist()
    check_tokens(found)


def test_packs_that_cannot_be_are_refused(place: stoker.Lake) -> None:
    def refused(match: str, **options: object) -> None:
        with pytest.raises(stoker.InvalidRequestError, match=match):
            place.sql(QUERY).stream(batch_size=8, **options)

    refused("pack is a int; it must be a stoker.Pack", pack=3)
    refused("no such column; it has id, tokens, mask, source", pack=stoker.Pack("words", length=8))
    refused("it is Utf8; packs are filled from lists of numbers", pack=stoker.Pack("source", length=8))
    refused("the padding 300 is no Int8", pack=stoker.Pack("mask", length=8, pad=300))
    refused("leave weight or pack out", pack=pack(), weight="id")
    for match, arguments in [
        ("length is 1; it must be a whole number from 2", {"columns": "tokens", "length": 1}),
        ("columns is ''; it must be the name", {"columns": "", "length": 8}),
        ("columns is a int; it must be the name of a column", {"columns": [3], "length": 8}),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=match):
            stoker.Pack(**arguments)


def test_the_command_line_streams_packs(documents_path: str) -> None:
    command = [stoker_bin(), "stream", QUERY, "--lake", documents_path, "--batch-size", "8", "--json"]
    command += ["--pack", "tokens", "--pack-length", str(LENGTH)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    packs = stoker.connect(documents_path).sql(QUERY).stream(batch_size=8, pack=stoker.Pack("tokens", length=LENGTH))
    assert report["rows"] == packs.num_rows
