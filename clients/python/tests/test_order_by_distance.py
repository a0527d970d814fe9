"""``ORDER BY`` a distance with ``LIMIT`` gives the rows that NumPy gives: exactly, or by an index if it may answer."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import adbc_driver_manager
import numpy as np
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager.dbapi import Connection
from conftest import Server, stoker_bin
from pyarrow import flight

import stoker

#: So many rows that texts, too, are read for the found rows only.
NUM_ROWS, DIMENSIONS, K = 17_000, 16, 10
SEARCH = "SELECT id, image, emb <-> $1 AS d FROM points ORDER BY d LIMIT 10"
EXACT, BY_INDEX = "search=exact (ORDER BY l2_distance)", r"search=index \w+ \(ORDER BY l2_distance\)"
OPTION = "adbc.flight.sql.session.option."


def vectors(num_rows: int, seed: int) -> np.ndarray:
    """Returns vectors in clusters, as embeddings are."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(40, DIMENSIONS)) * 3
    return (centres[random.integers(0, 40, num_rows)] + random.normal(size=(num_rows, DIMENSIONS))).astype(np.float32)


def columns(first: int, emb: np.ndarray) -> dict[str, object]:
    ids = np.arange(first, first + len(emb))
    image = np.broadcast_to((ids % 256).astype(np.uint8)[:, None, None], (len(ids), 30, 40))
    return {
        "id": ids,
        "label": (ids % 10).astype(np.int32),
        "name": [f"row {row}" for row in ids],
        "emb": emb,
        "image": np.ascontiguousarray(image),
    }


EMB = vectors(NUM_ROWS, 1)
QUERIES = vectors(20, 2)


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    """A lake with the table `points`, whose vectors have an index."""
    lake = stoker.connect(str(tmp_path_factory.mktemp("lake")))
    table = lake.create_table("points", columns(0, EMB), rows_per_fragment=5_000)
    table.create_index("emb", kind="ivf_pq", num_partitions=16, num_sub_vectors=8)
    return lake


@pytest.fixture(scope="module")
def server(own_lake: stoker.Lake) -> Iterator[Server]:
    running = Server(own_lake.target)
    yield running
    running.stop()


def distances(function: str, emb: np.ndarray, query: np.ndarray) -> np.ndarray:
    emb, query = emb.astype(np.float64), query.astype(np.float64)
    dot = emb @ query
    cosine = dot / (np.linalg.norm(emb, axis=1) * np.linalg.norm(query))
    return {
        "l2_distance": np.linalg.norm(emb - query, axis=1),
        "cosine_distance": 1 - cosine,
        "cosine_similarity": cosine,
        "dot_product": dot,
        "negative_inner_product": -dot,
    }[function]


def nearest(query: np.ndarray, emb: np.ndarray = EMB) -> list[int]:
    return np.argsort(distances("l2_distance", emb, query), kind="stable")[:K].tolist()


@pytest.mark.parametrize(
    ("order", "function"),
    [
        ("l2_distance(emb, $1)", "l2_distance"),
        ("emb <-> $1", "l2_distance"),
        ("cosine_distance(emb, $1)", "cosine_distance"),
        ("emb <=> $1", "cosine_distance"),
        ("cosine_similarity(emb, $1) DESC", "cosine_similarity"),
        ("dot_product(emb, $1) DESC NULLS LAST", "dot_product"),
        ("emb <#> $1", "negative_inner_product"),
    ],
)
def test_exact_results_are_those_of_numpy(place: stoker.Lake, order: str, function: str) -> None:
    for query in QUERIES[:4]:
        for condition, passes in [
            ("", np.ones(NUM_ROWS, dtype=bool)),
            ("WHERE label = 3", np.arange(NUM_ROWS) % 10 == 3),
            ("WHERE label IN (SELECT label FROM points WHERE id < 4)", np.arange(NUM_ROWS) % 10 < 4),
        ]:
            sql = f"SELECT id, {function}(emb, $1) AS d, name, image FROM points {condition} ORDER BY {order}"
            found = place.sql(f"{sql} LIMIT 12 OFFSET 3", params=[query]).to_arrow()
            all_distances = distances(function, EMB, query)
            sign = -1 if "DESC" in order else 1
            ids = np.flatnonzero(passes)
            expected = ids[np.argsort(sign * all_distances[ids], kind="stable")][3:15]
            assert found["id"].to_pylist() == expected.tolist()
            assert found["name"].to_pylist() == [f"row {row}" for row in expected]
            np.testing.assert_allclose(found["d"].to_numpy(), all_distances[expected], rtol=1e-4, atol=1e-5)
            images = found["image"].combine_chunks().to_numpy_ndarray()
            assert (images == (expected % 256)[:, None, None]).all()


def test_an_index_answers_if_it_is_allowed(place: stoker.Lake) -> None:
    num_found = 0
    for query in QUERIES:
        exact, by_index = place.sql(SEARCH, params=[query]), place.sql(SEARCH, params=[query], approximate=True)
        assert (exact.approximate, by_index.approximate) == (False, True)
        assert EXACT in str(exact.explain())
        assert re.search(BY_INDEX, str(by_index.explain()))
        assert exact.to_arrow()["id"].to_pylist() == nearest(query)
        found = by_index.to_arrow()
        ids = found["id"].to_numpy()
        expected = distances("l2_distance", EMB, query)
        np.testing.assert_allclose(found["d"].to_numpy(), expected[ids], rtol=1e-4)
        assert (np.diff(found["d"].to_numpy()) >= 0).all()
        assert len(set(ids.tolist())) == K
        num_found += len(set(nearest(query)).intersection(ids.tolist()))
    assert num_found >= 0.95 * K * len(QUERIES)
    assert repr(place.sql("SELECT 1", approximate=True)) == "Query('SELECT 1', approximate=True)"


def test_results_stay_right_while_rows_come_and_go(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    table = lake.create_table("points", columns(0, EMB))
    table.create_index("emb", kind="ivf_pq", num_partitions=8, num_sub_vectors=8)
    more = vectors(500, 3)
    lake.table("points").append(columns(NUM_ROWS, more))
    emb, query = np.concatenate([EMB, more]), more[17]
    gone: list[int] = []
    for _ in range(3):
        kept = np.setdiff1d(np.arange(len(emb)), gone)
        expected = kept[np.argsort(distances("l2_distance", emb[kept], query), kind="stable")[:K]].tolist()
        assert lake.sql(SEARCH, params=[query]).to_arrow()["id"].to_pylist() == expected
        found = lake.sql(SEARCH, params=[query], approximate=True).to_arrow()["id"].to_pylist()
        assert len(set(found) & set(expected)) >= 0.8 * K
        assert not set(found) & set(gone)
        row_ids = lake.sql(f"SELECT row_id FROM row_ids(points) WHERE id IN ({expected[0]}, {expected[3]})")
        lake.table("points").quarantine(row_ids.to_arrow()["row_id"].to_pylist())
        gone += [expected[0], expected[3]]


def test_streams_are_exact(own_lake: stoker.Lake) -> None:
    sql = "SELECT image, id FROM points ORDER BY emb <-> $1 LIMIT 10"
    query = own_lake.sql(sql, params=[QUERIES[0]], approximate=True)
    ids = [row for batch in query.stream(batch_size=4, shuffle=False) for row in batch["id"][batch.valid].tolist()]
    assert ids == nearest(QUERIES[0])


def test_the_command_line_has_a_flag(own_lake: stoker.Lake) -> None:
    sql = SEARCH.replace("$1", str(QUERIES[0].tolist()))
    command = [stoker_bin(), "--lake", own_lake.target, "sql", sql.replace("image, ", ""), "--format", "csv"]

    def output(*flags: str) -> str:
        return subprocess.run([*command, *flags], check=True, capture_output=True, text=True).stdout

    assert EXACT in output("--explain")
    assert re.search(BY_INDEX, output("--explain", "--approximate"))
    assert [int(line.split(",")[0]) for line in output().splitlines()[1:]] == nearest(QUERIES[0])
    assert len(output("--approximate").splitlines()) == K + 1


def connect(server: Server, **options: str) -> Connection:
    return flight_sql.connect(server.url.replace("grpc://", "grpc+tcp://"), db_kwargs=options)


def plan(connection: Connection) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN FORMAT TREE {SEARCH}".replace("$1", str(QUERIES[0].tolist())))
        return str(cursor.fetch_arrow_table().to_pylist())


def test_a_driver_with_cookies_has_the_session_option(server: Server) -> None:
    with connect(server, **{DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}) as connection:
        session = connection.adbc_connection
        assert session.get_option(f"{OPTION}approximate_order_by") == "false"
        assert EXACT in plan(connection)
        session.set_options(**{f"{OPTION}approximate_order_by": "true"})
        assert session.get_option(f"{OPTION}approximate_order_by") == "true"
        for _ in range(3):
            assert re.search(BY_INDEX, plan(connection))
        with connection.cursor() as cursor:
            cursor.execute(SEARCH, [QUERIES[1].tolist()])
            found = cursor.fetch_arrow_table()
            ids = found["id"].to_numpy()
            expected = distances("l2_distance", EMB, QUERIES[1])[ids]
            np.testing.assert_allclose(found["d"].to_numpy(), expected, rtol=1e-4)
        for name, value in [("approximate_order_by", "perhaps"), ("speed", "high"), ("schema", "other")]:
            with pytest.raises(adbc_driver_manager.Error):
                session.set_options(**{f"{OPTION}{name}": value})
        assert re.search(BY_INDEX, plan(connection)), "what was refused changes nothing"
        session.set_options(**{f"{OPTION}approximate_order_by": "false"})
        assert EXACT in plan(connection)


def test_a_driver_without_cookies_gets_exact_results(server: Server) -> None:
    with connect(server) as connection:
        connection.adbc_connection.set_options(**{f"{OPTION}approximate_order_by": "true"})
        assert EXACT in plan(connection)


class Cookies(flight.ClientMiddlewareFactory, flight.ClientMiddleware):  # type: ignore[misc]
    """A middleware that sends a cookie, and records the ones that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.cookie: str | None = None
        self.given: list[str] = []

    def start_call(self, _info: flight.CallInfo) -> Cookies:
        return self

    def sending_headers(self) -> dict[str, str]:
        return {} if self.cookie is None else {"cookie": f"other=1; {self.cookie}"}

    def received_headers(self, headers: dict[str, list[str]]) -> None:
        self.given += headers.get("set-cookie", [])


def field(tag: int, content: bytes) -> bytes:
    """Encodes a protobuf field of bytes or text below 16 KiB."""
    length = len(content)
    return bytes([tag << 3 | 2, *([length] if length < 128 else [length & 127 | 128, length >> 7])]) + content


def option(name: str, value: str) -> bytes:
    """Encodes the body of the action `SetSessionOptions`."""
    return field(1, field(1, name.encode()) + field(2, field(1, value.encode())))


def statement(sql: str) -> flight.FlightDescriptor:
    kind = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return flight.FlightDescriptor.for_command(field(1, kind) + field(2, field(1, sql.encode())))


def test_the_cookie_is_signed_and_serves_every_replica(own_lake: stoker.Lake) -> None:
    key, other_key = "shared:sixteen bytes or more", "shared:sixteen other bytes"
    servers = [Server(own_lake.target, {"STOKER_TICKET_KEY": secret}) for secret in (key, key, other_key)]
    try:
        cookies = [Cookies() for _ in servers]
        here, replica, stranger = (
            flight.connect(server.url.replace("grpc://", "grpc+tcp://"), middleware=[middleware])
            for server, middleware in zip(servers, cookies, strict=True)
        )
        descriptor = statement(f"EXPLAIN FORMAT TREE SELECT id FROM points ORDER BY emb <-> {[1] * 16} LIMIT 3")

        def shown(client: flight.FlightClient) -> str:
            (endpoint,) = client.get_flight_info(descriptor).endpoints
            return str(client.do_get(endpoint.ticket).read_all().to_pylist())

        # An option that has its default needs no cookie.
        list(here.do_action(flight.Action("SetSessionOptions", option("catalog", "lake"))))
        assert cookies[0].given == []
        assert EXACT in shown(here)
        list(here.do_action(flight.Action("SetSessionOptions", option("approximate_order_by", "true"))))
        (given,) = cookies[0].given
        assert re.fullmatch(r"stoker-session=[\w-]+; Path=/; HttpOnly", given)
        cookie = given.split(";")[0]
        for client, middleware in [(here, cookies[0]), (replica, cookies[1])]:
            middleware.cookie = cookie
            assert re.search(BY_INDEX, shown(client))
            assert middleware.given[-1].startswith("stoker-session="), "each statement renews the cookie"
            (options,) = client.do_action(flight.Action("GetSessionOptions", b""))
            assert b"approximate_order_by" in options.body.to_pybytes()
        cookies[2].cookie = cookie
        cookies[1].cookie = cookie[:-5] + ("A" if cookie[-5] != "A" else "B") + cookie[-4:]
        for client in (stranger, replica):
            with pytest.raises((flight.FlightError, pa.ArrowException), match="the cookie of the session is not valid"):
                client.get_flight_info(descriptor)
            with pytest.raises((flight.FlightError, pa.ArrowException), match="connect again"):
                list(client.do_action(flight.Action("GetSessionOptions", b"")))
        # A session that is not valid can be closed.
        list(stranger.do_action(flight.Action("CloseSession", b"")))
        assert "Max-Age=0" in cookies[2].given[-1]
    finally:
        for server in servers:
            server.stop()
