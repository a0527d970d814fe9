"""What earlier versions stored stays valid: specifications, row sets, runs, states and receipts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_lake import NUM_TAKEN, PARAMS, QUERY, RUN_ID, STORED, STREAM, VERSIONS, ids, mixture, single

import stoker

STORED_STREAMS: dict[str, Callable[[stoker.Lake], stoker.Stream]] = {"single": single, "mixture": mixture}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """A version of Stoker that stored a lake."""
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path, version: str) -> stoker.Lake:
    """A copy of the lake of that version."""
    return copied(tmp_path, version)


def copied(tmp_path: Path, version: str) -> stoker.Lake:
    shutil.copytree(STORED / version / "lake", tmp_path / "lake")
    return stoker.connect(str(tmp_path / "lake"))


@pytest.fixture(params=STORED_STREAMS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def stored(version: str, kind: str) -> dict[str, Any]:
    """Returns what a version saved of a stream: its id, batches, state and receipt."""
    found: dict[str, Any] = json.loads((STORED / version / "stored.json").read_text())[kind]
    return found


def test_states_go_on_where_they_were(lake: stoker.Lake, version: str, kind: str) -> None:
    saved = stored(version, kind)
    stream = STORED_STREAMS[kind](lake)
    stream.load_state_dict(saved["state"])
    assert stream.stream_id == saved["stream_id"] == saved["state"]["stream_id"]
    assert stream.state_dict() == saved["state"]
    assert [ids(batch) for batch in stream] == saved["batches"][NUM_TAKEN:]
    verdicts = lake.verify([saved["receipt"], stream.receipt()])
    assert [verdict.is_exactly_once for verdict in verdicts] == [True]


def test_a_state_brings_its_order_unless_another_is_asked_for(tmp_path: Path) -> None:
    lake, saved = copied(tmp_path, "order-2"), stored("order-2", "single")
    query = lake.sql(QUERY, PARAMS)
    stream = query.stream(**STREAM)
    assert stream.stream_id != saved["stream_id"], "streams have another default"
    stream.load_state_dict(saved["state"])
    assert stream.stream_id == saved["stream_id"]
    assert [ids(batch) for batch in stream] == saved["batches"][NUM_TAKEN:]
    loader = query.torch(**STREAM)
    loader.load_state_dict(saved["state"])
    assert next(iter(loader))["id"].tolist() == saved["batches"][NUM_TAKEN]
    for options in ({"order_version": 1}, {"seed": 12}, {"num_lanes": 7}):
        with pytest.raises(stoker.StateMismatchError, match=r"order options|seed"):
            query.stream(**{**STREAM, **options}).load_state_dict(saved["state"])


def test_streams_have_the_ids_and_orders_that_they_had(lake: stoker.Lake, version: str) -> None:
    saved = stored(version, "single")
    stream = single(lake)
    assert stream.stream_id == saved["stream_id"]
    assert [ids(batch) for batch in stream] == saved["batches"]
    before = {path.name for path in (STORED / version / "lake/_stoker/specs").iterdir()}
    assert {path.name for path in Path(lake.target, "_stoker/specs").iterdir()} == before, "nothing was planned anew"


def test_specifications_are_loaded_by_their_ids(lake: stoker.Lake, version: str, kind: str) -> None:
    saved = stored(version, kind)
    handle = lake._native.load_stream(json.dumps(saved["state"]))
    assert handle.stream_id == saved["stream_id"]


def test_runs_and_their_logs_are_found(lake: stoker.Lake, version: str) -> None:
    saved = stored(version, "single")
    run = lake.run(RUN_ID)
    assert [(entry.event, entry.step, entry.epoch) for entry in run.entries()] == [("epoch", 0, 0)]
    for step, rows in enumerate(saved["batches"]):
        assert ids(run.batch(step)) == rows
    # A text with one more comment is the same query. A query with other parameters is not.
    options = {**STREAM, "run_id": RUN_ID}
    assert lake.sql(f"{QUERY} -- now", [40]).stream(**options).stream_id == saved["stream_id"]
    with pytest.raises(stoker.StateMismatchError, match="parameters: the run has"):
        lake.sql(QUERY, [39]).stream(**options)
