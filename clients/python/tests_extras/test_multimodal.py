"""One table of all kinds of columns, in JAX and TensorFlow, in process and through a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import opened

import stoker

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from multimodal import check_all, check_equal, check_packs, check_weights, make_table, make_videos


@pytest.fixture(scope="module")
def videos() -> list[bytes]:
    return make_videos()


@pytest.fixture(scope="module")
def path(videos: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = stoker.connect(str(tmp_path_factory.mktemp("scenes")))
    make_table(lake, videos)
    return lake.target


@pytest.fixture(params=["in process", "through a server"])
def lake(request: pytest.FixtureRequest, path: str) -> Iterator[stoker.Lake]:
    yield from opened(path, request.param)


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_a_framework_gets_what_was_written(lake: stoker.Lake, videos: list[bytes], framework: str) -> None:
    check_all(lake, framework, videos)


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_a_framework_gets_the_arrays_of_numpy(lake: stoker.Lake, framework: str) -> None:
    check_equal(lake, framework)


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_packs_have_the_documents_that_were_written(lake: stoker.Lake, framework: str) -> None:
    check_packs(lake, framework)


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_rows_come_as_often_as_they_weigh(lake: stoker.Lake, framework: str) -> None:
    check_weights(lake, framework)
