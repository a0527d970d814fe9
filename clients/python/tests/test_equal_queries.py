"""A stream resumes with another text of the same query, and says how to resume after its table has grown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Server, make_columns
from test_service import cli, refused

import stoker

QUERY = "SELECT id, image FROM samples WHERE id < $1 AND name <> 'row  3'"
SAME = [
    "SELECT id,  image FROM samples WHERE id < $1 AND name <> 'row  3'",
    "select id, image\nfrom samples -- all of them\nwhere id < $1 and name <> 'row  3';",
]
OTHERS = [
    "SELECT id, image FROM samples WHERE id < $1 AND name <> 'row 3'",
    "SELECT id, image FROM samples WHERE id <= $1 AND name <> 'row  3'",
    "SELECT \"id\", image FROM samples WHERE id < $1 AND name <> 'row  3'",
]
PARAMS = [90]


@pytest.fixture(params=["in process", "through a server"])
def place(request: pytest.FixtureRequest, lake_path: str, server: Server) -> stoker.Lake:
    """The lake, opened in this process and through a server."""
    return stoker.connect(lake_path if request.param == "in process" else server.url)


def ids(batch: stoker.Batch) -> list[int]:
    return batch["id"][batch.valid].tolist()


@pytest.mark.parametrize("text", SAME)
def test_another_text_of_the_query_goes_on(place: stoker.Lake, text: str) -> None:
    def stream(sql: str) -> stoker.Stream:
        return place.sql(sql, PARAMS).stream(batch_size=8, seed=3)

    whole = [ids(batch) for batch in stream(QUERY)]
    first = stream(QUERY)
    taken = [ids(batch) for _, batch in zip(range(4), first, strict=False)]
    second = stream(text)
    assert second.stream_id != first.stream_id
    second.load_state_dict(json.dumps(first.state_dict()))
    assert second.stream_id == first.stream_id
    assert second.state_dict() == first.state_dict()
    assert taken + [ids(batch) for batch in second] == whole
    (verdict,) = place.verify([first.receipt(), second.receipt()])
    assert verdict.is_exactly_once
    # After the resume, the second stream is the same stream as the first in all later epochs too.
    first.set_epoch(1)
    assert [ids(batch) for batch in second] == [ids(batch) for batch in first]


def test_what_is_not_the_same_query_is_refused(place: stoker.Lake) -> None:
    state = place.sql(QUERY, PARAMS).stream(batch_size=8, seed=3).state_dict()
    for text in OTHERS:
        with pytest.raises(stoker.StateMismatchError, match="query: the state has"):
            place.sql(text, PARAMS).stream(batch_size=8, seed=3).load_state_dict(state)
    for params, options in (([80], {"seed": 3}), (PARAMS, {"seed": 4}), (PARAMS, {"seed": 3, "shuffle": "full"})):
        with pytest.raises(stoker.StateMismatchError):
            place.sql(SAME[0], params).stream(batch_size=8, **options).load_state_dict(state)


def test_other_texts_of_the_queries_of_a_mixture_go_on_with_its_weights(place: stoker.Lake) -> None:
    def stream(*texts: str) -> stoker.Stream:
        return stoker.mix([(place.sql(text, PARAMS), 0.5) for text in texts], epoch_rows=64).stream(
            batch_size=8, seed=3
        )

    low = "SELECT id, image FROM samples WHERE id >= $1"
    first = stream(QUERY, low)
    next(iter(first))
    first.set_weights([3, 1])
    second = stream(SAME[1], f"{low} ;")
    second.load_state_dict(first.state_dict())
    assert second.weights == [0.75, 0.25]
    assert second.stream_id == first.stream_id
    assert [ids(batch) for batch in second] == [ids(batch) for batch in first]


def test_a_run_is_joined_by_another_text_of_its_query(place: stoker.Lake) -> None:
    run_id = f"texts-{place.target.rpartition('/')[2].replace(':', '-')}"
    first = place.sql(QUERY, PARAMS).stream(batch_size=8, run_id=run_id)
    for text in SAME:
        assert place.sql(text, PARAMS).stream(batch_size=8, run_id=run_id).stream_id == first.stream_id
    with pytest.raises(stoker.StateMismatchError, match="query: the run has"):
        place.sql(OTHERS[0], PARAMS).stream(batch_size=8, run_id=run_id)


def test_the_way_out_after_a_table_has_grown(tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    table = stoker.connect(path).create_table("samples", make_columns(40))
    query = "SELECT id, image FROM samples"
    stream = stoker.connect(path).sql(query).stream(batch_size=8)
    taken = [ids(batch) for _, batch in zip(range(2), stream, strict=False)]
    state = json.dumps(stream.state_dict())
    table.append(make_columns(10, start=40))
    with pytest.raises(stoker.StateMismatchError, match=r"use lake\.resume\(state, …\), or `stoker stream --state …`"):
        stoker.connect(path).sql(query).stream(batch_size=8).load_state_dict(state)
    place = ["--lake", path, "--batch-size", "8", "--json"]
    assert "`stoker stream --state …` without a query" in refused("stream", query, "--state", state, *place)
    report = json.loads(cli("stream", "--state", state, *place).stdout)
    assert (report["stream_id"], report["rows"]) == (stream.stream_id, 40 - sum(map(len, taken)))
    assert report["state"]["position"] == 40
    # A query with a snapshot clause is not the same query, even if it selects the snapshot of the state.
    same = ["stream", "select id, image from samples AT (VERSION => 1);", "--batch-size", "8"]
    assert "query: the state has" in refused(*same, "--state", state, "--lake", path)
    for options in (["--seed", "3"], ["--shuffle", "full"], ["--run-id", "x"], ["--param", "1"]):
        done = cli("stream", "--state", state, *options, *place)
        assert done.returncode == 2
        assert "QUERY" in done.stderr
