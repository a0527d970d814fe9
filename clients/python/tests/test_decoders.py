"""Functions of Python that decode columns, and transforms on threads."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server

import stoker

NUM_ROWS = 40
QUERY = "SELECT id, packed FROM packs"


def reversed_bytes(value: bytes) -> np.ndarray:
    """A decoder that can be pickled."""
    return np.frombuffer(value, np.uint8)[::-1]


def with_noise(value: bytes, seed: int) -> np.ndarray:
    return np.frombuffer(value, np.uint8) + np.random.default_rng(seed).random(4)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with the table `packs`."""
    path = str(tmp_path_factory.mktemp("packs"))
    values = [np.array([row, row + 1, row + 2, 9], np.uint8).tobytes() for row in range(NUM_ROWS)]
    columns = {"id": np.arange(NUM_ROWS), "packed": pa.array(values, pa.large_binary()), "text": ["a"] * NUM_ROWS}
    stoker.connect(path).create_table("packs", columns)
    return path


@pytest.fixture
def query(packs: str) -> stoker.Query:
    return stoker.connect(packs).sql(QUERY)


def arrays(stream: stoker.Stream) -> dict[int, np.ndarray]:
    found = {}
    for batch in stream:
        for row, value in zip(batch["id"][batch.valid], batch["packed"][batch.valid], strict=True):
            found[int(row)] = value.copy()
    return found


def test_a_function_decodes_each_value(query: stoker.Query) -> None:
    decoder = stoker.Decoder(reversed_bytes, shape=4, dtype="uint8")
    stream = query.stream(batch_size=8, seed=7, decode={"packed": decoder})
    assert stoker.tensor_shape(stream.schema.field("packed")) == (4,)
    assert {row: value.tolist() for row, value in arrays(stream).items()} == {
        row: [9, row + 2, row + 1, row] for row in range(NUM_ROWS)
    }


def test_functions_decode_behind_a_server_and_for_tensors(packs: str) -> None:
    decoder = stoker.Decoder(lambda value: np.frombuffer(value, np.uint8).reshape(2, 2), shape=(2, 2), dtype="uint8")
    server = Server(packs)
    try:
        for batch in stoker.connect(server.url).sql(QUERY).torch(batch_size=8, decode={"packed": decoder}):
            assert batch["packed"].shape == (8, 2, 2)
            assert batch["packed"][:, 0, 0].tolist() == batch["id"].tolist()
    finally:
        server.stop()


def test_draws_are_functions_of_seed_epoch_and_position(query: stoker.Query) -> None:
    decoder = stoker.Decoder(with_noise, shape=(4,), dtype="float64", seeded=True)
    options = {"seed": 7, "decode": {"packed": decoder}}
    stream = query.stream(batch_size=8, **options)
    first, second = arrays(stream), arrays(stream)
    halves: dict[int, np.ndarray] = {}
    for rank in range(2):
        halves |= arrays(query.stream(batch_size=3, rank=rank, world_size=2, **options))
    for row, value in first.items():
        np.testing.assert_array_equal(halves[row], value)
    assert sum(not np.array_equal(second[row], value) for row, value in first.items()) > NUM_ROWS * 0.9


def test_a_bad_row_is_substituted_or_named(query: stoker.Query) -> None:
    def picky(value: bytes) -> np.ndarray:
        if value[0] % 10 == 3:
            raise stoker.BadRow("its first number ends with 3")
        return np.frombuffer(value, np.uint8)

    decoder = {"packed": stoker.Decoder(picky, shape=4, dtype="uint8")}
    stream = query.stream(batch_size=8, seed=7, decode=decoder, bad_rows="substitute", max_bad_share=1)
    rows = [row for batch in stream for row in batch["id"].tolist()]
    assert len(rows) == NUM_ROWS
    assert not any(row % 10 == 3 for row in rows)
    found = stream.substituted()
    assert len(found) == 4
    assert "its first number ends with 3" in found[0]["reason"]
    with pytest.raises(stoker.DataCorruptError, match=r"packed, row id \d+ of packs version 1.*ends with 3"):
        arrays(query.stream(batch_size=8, seed=7, decode=decoder))


def test_an_exception_ends_the_stream_and_names_the_row(query: stoker.Query) -> None:
    def broken(value: bytes) -> np.ndarray:
        if value[0] == 17:
            raise KeyError("seventeen")
        return np.frombuffer(value, np.uint8)

    decoder = {"packed": stoker.Decoder(broken, shape=4, dtype="uint8")}
    for bad_rows in ("error", "substitute"):
        words = r"column packed, row id 17 of packs version 1 .*: the decoder failed: KeyError: 'seventeen'"
        with pytest.raises(stoker.InvalidRequestError, match=words):
            arrays(query.stream(batch_size=8, seed=7, decode=decoder, bad_rows=bad_rows))


@pytest.mark.parametrize("shape", [3, (2, 2), ()])
def test_arrays_of_another_shape_are_refused(query: stoker.Query, shape: int | tuple[int, ...]) -> None:
    decoder = stoker.Decoder(reversed_bytes, shape=shape, dtype="uint8")
    with pytest.raises(stoker.InvalidRequestError, match=r"the function returned uint8\[4\]; the decoder says uint8"):
        arrays(query.stream(batch_size=8, decode={"packed": decoder}))
    other = stoker.Decoder(reversed_bytes, shape=4, dtype="int16")
    with pytest.raises(stoker.InvalidRequestError, match=r"the function returned uint8\[4\]; the decoder says int16"):
        arrays(query.stream(batch_size=8, decode={"packed": other}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"function": 3, "shape": 4}, "function is 3"),
        ({"function": len, "shape": 0}, "shape is"),
        ({"function": len, "shape": -1}, "shape is -1"),
        ({"function": len, "shape": (2**31 - 1, 2**31 - 1, 2**31 - 1)}, "shape is"),
        ({"function": len, "shape": 4, "dtype": "complex64"}, "dtype is"),
        ({"function": len, "shape": 4, "dtype": "no"}, "dtype is"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, words: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=words):
        stoker.Decoder(**options)


def test_other_decoders_and_columns_are_refused(query: stoker.Query, packs: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=r"stoker\.Decoder"):
        query.stream(batch_size=8, decode={"packed": reversed_bytes})
    decoder = stoker.Decoder(reversed_bytes, shape=4, dtype="uint8")
    with pytest.raises(stoker.InvalidRequestError, match="not files of values"):
        next(iter(query.stream(batch_size=8, decode={"id": decoder})))


def test_streams_with_functions_are_pickled(query: stoker.Query) -> None:
    decoder = stoker.Decoder(reversed_bytes, shape=4, dtype="uint8")
    stream = query.stream(batch_size=8, seed=7, decode={"packed": decoder})
    copy = pickle.loads(pickle.dumps(stream))
    expected = arrays(stream)
    for row, value in arrays(copy).items():
        np.testing.assert_array_equal(value, expected[row])
    local = stoker.Decoder(lambda value: np.frombuffer(value, np.uint8), shape=4, dtype="uint8")
    with pytest.raises(Exception, match="cannot be sent to another process"):
        pickle.dumps(query.stream(batch_size=8, decode={"packed": local}))


@pytest.mark.parametrize("num_threads", [0, 1, 3])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_transforms_run_on_threads_in_order(query: stoker.Query, framework: str, num_threads: int) -> None:
    seen: set[str] = set()

    def transform(batch: dict) -> dict:
        seen.add(threading.current_thread().name)
        return {"double": batch["id"] * 2}

    options = {"batch_size": 4, "seed": 7, "transform": transform, "transform_threads": num_threads}
    loader = getattr(query, framework)(**options)
    expected = [batch["id"].tolist() for batch in query.stream(batch_size=4, seed=7)]
    found = []
    for batch in loader:
        found.append([value // 2 for value in batch["double"].tolist()])
        assert loader.state_dict()["step"] == len(found), "only what the loop got counts"
    assert found == expected
    assert all(name.startswith("stoker-transform") for name in seen) == (num_threads > 0)


def test_a_resume_in_the_midst_of_threads_is_exact(query: stoker.Query) -> None:
    def loader() -> stoker.Stream:
        return query.numpy(batch_size=4, seed=7, transform=lambda batch: batch, transform_threads=3)

    expected = [batch["id"].tolist() for batch in loader()]
    first = loader()
    found = []
    for batch in first:
        found.append(batch["id"].tolist())
        if len(found) == 3:
            break
    found.extend(batch["id"].tolist() for batch in first)
    assert found == expected


def test_an_exception_in_a_transform_names_its_rows(query: stoker.Query) -> None:
    def transform(batch: dict) -> dict:
        if 17 in batch["id"]:
            raise KeyError("seventeen")
        return batch

    for num_threads in (0, 2):
        loader = query.numpy(batch_size=4, shuffle=False, transform=transform, transform_threads=num_threads)
        with pytest.raises(KeyError) as raised:
            for _ in loader:
                pass
        notes = getattr(raised.value, "__notes__", ["step 4: packs version 1, row ids 16, 17"])
        assert "step 4: packs version 1, row ids 16, 17" in notes[0]
    with pytest.raises(stoker.InvalidRequestError, match="transform_threads"):
        query.numpy(batch_size=4, transform_threads=-1)


def test_a_hanging_function_leaves_the_loop_free(query: stoker.Query, tmp_path: Path) -> None:
    """A stream whose function hangs can be closed from another thread."""
    release = threading.Event()

    def hangs(value: bytes) -> np.ndarray:
        release.wait()
        return np.frombuffer(value, np.uint8)

    stream = query.stream(batch_size=8, decode={"packed": stoker.Decoder(hangs, shape=4, dtype="uint8")})
    ended = threading.Event()

    def loop() -> None:
        for _ in stream:
            pass
        ended.set()

    thread = threading.Thread(target=loop)
    thread.start()
    stream.close()
    release.set()
    thread.join()
    assert ended.is_set()
