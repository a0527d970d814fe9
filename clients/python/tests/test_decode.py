"""Images are sent as files, and decoded to tensors in the client."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server
from PIL import Image

import stoker

NUM_ROWS = 50
QUERY = "SELECT id, image FROM photos"

#: A transform with random augmentations, so that tests notice draws that depend on ranks, batches or resumes.
RANDOM = stoker.ImageTransform(size=(24, 20), random_resized_crop=True, horizontal_flip=0.5)


def picture(row: int) -> Image.Image:
    """Returns a smooth image whose size and colours depend on the row."""
    height, width = 40 + row % 7, 50 + row % 11
    y, x = np.mgrid[0:height, 0:width]
    planes = [x * 4 + row, y * 5, (x + y) * 2 + row * 3]
    return Image.fromarray(np.stack([plane % 256 for plane in np.minimum(planes, 255)], axis=-1).astype(np.uint8))


def encoded(image: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **({"quality": 92} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()


def files(num_rows: int = NUM_ROWS) -> list[bytes]:
    return [encoded(picture(row), ("JPEG", "PNG", "WEBP")[row % 3]) for row in range(num_rows)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with the table `photos`."""
    path = str(tmp_path_factory.mktemp("photos"))
    values = {"id": np.arange(NUM_ROWS), "image": pa.array(files(), pa.large_binary())}
    stoker.connect(path).create_table("photos", values, encoded_images=["image"])
    return path


@pytest.fixture
def query(photos: str) -> stoker.Query:
    return stoker.connect(photos).sql(QUERY)


def tensors(stream: stoker.Stream) -> dict[int, np.ndarray]:
    """Reads the rest of an epoch; returns the tensor of each row by its id."""
    found = {}
    for batch in stream:
        for row, image in zip(batch["id"][batch.valid], batch["image"][batch.valid], strict=True):
            found[int(row)] = image.copy()
    return found


def assert_same(left: dict[int, np.ndarray], right: dict[int, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for row, image in left.items():
        np.testing.assert_array_equal(image, right[row])


def test_batches_have_tensors_in_place_of_files(query: stoker.Query) -> None:
    stream = query.stream(batch_size=16, decode={"image": stoker.ImageTransform(size=(24, 20))})
    assert stoker.tensor_shape(stream.schema.field("image")) == (3, 24, 20)
    assert stream.schema.names == ["id", "image"]
    batch = next(iter(stream))
    assert (batch["image"].shape, batch["image"].dtype) == ((16, 3, 24, 20), np.uint8)
    assert batch.to_arrow().schema.field("image").type == stream.schema.field("image").type
    assert stream.stats().rows == 16


@pytest.mark.parametrize("layout", ["chw", "hwc"])
def test_pixels_are_those_of_pillow(query: stoker.Query, layout: str) -> None:
    transform = stoker.ImageTransform(size=(20, 25), fit="stretch", layout=layout)
    found = tensors(query.stream(batch_size=8, decode={"image": transform}))
    assert sorted(found) == list(range(NUM_ROWS))
    for row, file in enumerate(files()):
        image = Image.open(io.BytesIO(file)).convert("RGB").resize((25, 20), Image.Resampling.BILINEAR)
        expected = np.asarray(image).astype(int)
        pixels = found[row].transpose(1, 2, 0) if layout == "chw" else found[row]
        # Decoders of JPEG may differ by a few units where they upsample chroma.
        assert np.abs(pixels.astype(int) - expected).mean() < 2.5, row


def test_floats_are_normalised(query: stoker.Query) -> None:
    plain = tensors(query.stream(batch_size=8, decode={"image": stoker.ImageTransform(size=16)}))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    for dtype, tolerance in (("float32", 1e-6), ("float16", 2e-3)):
        transform = stoker.ImageTransform(size=16, dtype=dtype, mean=mean, std=std)
        found = tensors(query.stream(batch_size=8, decode={"image": transform}))
        for row, image in found.items():
            assert image.dtype == np.dtype(dtype)
            scaled = (plain[row] / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
            np.testing.assert_allclose(image, scaled, atol=tolerance)


def test_augmentations_depend_on_seed_and_epoch(query: stoker.Query) -> None:
    stream = query.stream(batch_size=16, seed=7, decode={"image": RANDOM})
    first, second = tensors(stream), tensors(stream)
    assert_same(first, tensors(query.stream(batch_size=16, seed=7, decode={"image": RANDOM})))
    other = tensors(query.stream(batch_size=16, seed=8, decode={"image": RANDOM}))
    for changed in (second, other):
        assert sum(not np.array_equal(first[row], changed[row]) for row in first) > NUM_ROWS * 0.9


@pytest.mark.parametrize(("world_size", "batch_size"), [(1, 5), (2, 8), (3, 4), (5, 1)])
def test_augmentations_do_not_depend_on_ranks_and_batches(
    query: stoker.Query, world_size: int, batch_size: int
) -> None:
    expected = tensors(query.stream(batch_size=16, seed=7, decode={"image": RANDOM}))
    found: dict[int, np.ndarray] = {}
    for rank in range(world_size):
        options = {"rank": rank, "world_size": world_size, "batch_size": batch_size}
        found |= tensors(query.stream(**options, seed=7, decode={"image": RANDOM}, decode_threads=rank + 1))
    assert_same(found, expected)


def test_augmentations_survive_resumes(query: stoker.Query) -> None:
    expected = tensors(query.stream(batch_size=16, seed=7, decode={"image": RANDOM}))
    stream = query.stream(batch_size=6, seed=7, decode={"image": RANDOM})
    found = {}
    for step, batch in enumerate(stream):
        found.update({int(row): image.copy() for row, image in zip(batch["id"], batch["image"], strict=True)})
        if step == 2:
            break
    state = stream.state_dict()
    for rank in range(2):
        resumed = query.stream(batch_size=4, seed=7, rank=rank, world_size=2, decode={"image": RANDOM})
        resumed.load_state_dict(state)
        found |= tensors(resumed)
    assert_same(found, expected)


def test_the_state_and_the_order_do_not_know_the_transform(query: stoker.Query) -> None:
    decoded, plain = query.stream(batch_size=16, decode={"image": RANDOM}), query.stream(batch_size=16)
    assert decoded.stream_id == plain.stream_id
    for batch, other in zip(decoded, plain, strict=True):
        np.testing.assert_array_equal(batch["id"], other["id"])
        assert isinstance(other["image"][0], bytes)
    assert decoded.state_dict() == plain.state_dict()
    assert decoded.receipt() == plain.receipt()


def test_streams_pickle_with_their_transforms(query: stoker.Query) -> None:
    stream = query.stream(batch_size=16, seed=7, decode={"image": RANDOM})
    assert_same(tensors(pickle.loads(pickle.dumps(stream))), tensors(stream))


def test_servers_send_files(photos: str, query: stoker.Query) -> None:
    server = Server(photos)
    try:
        remote = stoker.connect(server.url).sql(QUERY).stream(batch_size=16, seed=7, decode={"image": RANDOM})
        assert_same(tensors(remote), tensors(query.stream(batch_size=16, seed=7, decode={"image": RANDOM})))
    finally:
        server.stop()


def test_tiny_budgets_are_enough(query: stoker.Query) -> None:
    stream = query.stream(batch_size=16, memory_budget_bytes=1, decode={"image": RANDOM})
    assert len(tensors(stream)) == NUM_ROWS


def test_loaders_have_tensors(query: stoker.Query) -> None:
    torch = pytest.importorskip("torch")
    transform = stoker.ImageTransform(size=(8, 12), dtype="float32")
    batch = next(iter(query.torch(batch_size=4, decode={"image": transform})))
    assert (batch["image"].shape, batch["image"].dtype) == ((4, 3, 8, 12), torch.float32)


def test_damaged_images_are_named(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    broken = files(6)
    broken[3] = broken[3][: len(broken[3]) // 2]
    lake.create_table("t", {"image": pa.array(broken, pa.large_binary())}, encoded_images=["image"])
    stream = lake.sql("SELECT image FROM t").stream(
        batch_size=2, shuffle=False, decode={"image": stoker.ImageTransform(size=8)}
    )
    with pytest.raises(stoker.DataCorruptError, match=r"column image, row id 3 of t version .*position 3 "):
        list(stream)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size"),
        ({"size": (2, 3, 4)}, "height and width"),
        ({"size": 8, "fit": "zoom"}, 'fit is "zoom"'),
        ({"size": 8, "channels": 2}, "channels is 2"),
        ({"size": 8, "horizontal_flip": 2.0}, "horizontal_flip"),
        ({"size": 8, "mean": (0.5, 0.5, 0.5)}, "float"),
        ({"size": 8, "mean": (0.5,), "dtype": "float32"}, "3 channels"),
        ({"size": 8, "shorter_side": 4}, "shorter_side is 4"),
        ({"size": 8, "fit": "contain", "crop": "random"}, "crops nothing"),
    ],
)
def test_transforms_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=message):
        stoker.ImageTransform(**options)


def test_columns_that_cannot_be_decoded(query: stoker.Query) -> None:
    transform = stoker.ImageTransform(size=8)
    for column, message in (("id", "not files of images"), ("other", "cannot decode column other, it does not exist")):
        with pytest.raises(stoker.InvalidRequestError, match=message):
            query.stream(batch_size=4, decode={column: transform})
    with pytest.raises(stoker.InvalidRequestError, match=r"must be a decoder such as stoker\.ImageTransform"):
        query.stream(batch_size=4, decode={"image": 224})
