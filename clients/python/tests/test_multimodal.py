"""One table of all kinds of columns, in NumPy and PyTorch, in process and through a server."""

from __future__ import annotations

import pytest
from multimodal import check_all, check_equal, check_packs, check_weights, make_table, make_videos

import stoker


@pytest.fixture(scope="module")
def videos() -> list[bytes]:
    return make_videos()


@pytest.fixture(scope="module")
def own_lake(videos: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    lake = stoker.connect(str(tmp_path_factory.mktemp("scenes")))
    make_table(lake, videos)
    return lake


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_framework_gets_what_was_written(place: stoker.Lake, videos: list[bytes], framework: str) -> None:
    check_all(place, framework, videos)


def test_pytorch_gets_the_arrays_of_numpy(place: stoker.Lake) -> None:
    check_equal(place, "torch")


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_packs_have_the_documents_that_were_written(place: stoker.Lake, framework: str) -> None:
    check_packs(place, framework)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_rows_come_as_often_as_they_weigh(place: stoker.Lake, framework: str) -> None:
    check_weights(place, framework)
