"""Lists of images, several crops, masks that follow their images, boxes, and changes of colours."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image, ImageEnhance
from test_decode import encoded, picture

import stoker
from stoker import _native

NUM_ROWS = 24

#: A transform with random regions, so that tests notice draws that differ.
RANDOM = {"size": (24, 20), "random_resized_crop": True, "horizontal_flip": 0.5, "rotation": 20}


def depth(row: int) -> np.ndarray:
    """Returns a 16-bit image of the size of `picture(row)`."""
    height, width = 40 + row % 7, 50 + row % 11
    y, x = np.mgrid[0:height, 0:width]
    return ((x * 997 + y * 131 + row) % 65_536).astype(np.uint16)


def classes(row: int) -> Image.Image:
    """Returns a mask with palette, whose indices are classes."""
    image = Image.fromarray((depth(row) % 7).astype(np.uint8), mode="P")
    image.putpalette([value for index in range(256) for value in (index * 37 % 256, index * 91 % 256, 5)])
    return image


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    """A lake with the table `scenes`."""
    lake = stoker.connect(str(tmp_path_factory.mktemp("scenes")))
    photos = [encoded(picture(row), ("JPEG", "PNG", "WEBP")[row % 3]) for row in range(NUM_ROWS)]
    views = [[encoded(picture(row + view), "PNG") for view in range(row % 4)] for row in range(NUM_ROWS)]
    boxes = [[[2.0 + box, 3.0, 20.0 + box, 30.0] for box in range(row % 3)] for row in range(NUM_ROWS)]
    lake.create_table(
        "scenes",
        {
            "id": np.arange(NUM_ROWS),
            "photo": pa.array(photos, pa.large_binary()),
            "views": pa.array(views, pa.list_(pa.large_binary())),
            "mask": pa.array([encoded(classes(row), "PNG") for row in range(NUM_ROWS)], pa.large_binary()),
            "depth": pa.array(
                [encoded(Image.fromarray(depth(row)), "PNG") for row in range(NUM_ROWS)], pa.large_binary()
            ),
            "boxes": pa.array(boxes, pa.list_(pa.list_(pa.float32(), 4))),
            "media": pa.array([{"bytes": photo, "path": str(row)} for row, photo in enumerate(photos)]),
        },
        encoded_images=["photo"],
    )
    return lake


def by_id(stream: stoker.Stream, *columns: str) -> dict[int, tuple[np.ndarray, ...]]:
    found = {}
    for batch in stream:
        for row, key in enumerate(batch["id"][batch.valid].tolist()):
            found[key] = tuple(batch[column][row].copy() for column in columns)
    return found


def test_lists_of_images_become_one_tensor(place: stoker.Lake) -> None:
    decoder = stoker.ImageTransform(size=(40, 50), images=2)
    assert decoder.shape == (2, 3, 40, 50)
    stream = place.sql("SELECT id, views FROM scenes").stream(batch_size=7, seed=1, decode={"views": decoder})
    assert stream.schema.names == ["id", "views", "views_length"]
    found = by_id(stream, "views", "views_length")
    for row, (views, length) in found.items():
        assert length == min(row % 4, 2)
        for view in range(2):
            if view >= length:
                assert not views[view].any()
                continue
            single = stoker.ImageTransform(size=(40, 50))
            assert views[view].shape == single.shape
            if (row + view) % 7 == 0 and (row + view) % 11 == 0:
                expected = np.asarray(picture(row + view)).transpose(2, 0, 1)
                np.testing.assert_array_equal(views[view], expected)


def test_files_in_structs_are_decoded(place: stoker.Lake) -> None:
    decoder = stoker.ImageTransform(size=16)
    query = place.sql("SELECT id, photo, media FROM scenes")
    found = by_id(query.stream(batch_size=5, decode={"photo": decoder, "media": decoder}), "photo", "media")
    assert len(found) == NUM_ROWS
    for photo, media in found.values():
        np.testing.assert_array_equal(photo, media)


def test_crops_of_a_row_differ(place: stoker.Lake) -> None:
    query = place.sql("SELECT id, photo FROM scenes")
    many = by_id(
        query.stream(batch_size=5, seed=3, decode={"photo": stoker.ImageTransform(crops=3, **RANDOM)}), "photo"
    )
    one = by_id(query.stream(batch_size=6, seed=3, decode={"photo": stoker.ImageTransform(**RANDOM)}), "photo")
    for row, (crops,) in many.items():
        assert crops.shape == (3, 3, 24, 20)
        np.testing.assert_array_equal(crops[0], one[row][0])
        assert not np.array_equal(crops[0], crops[1])


def test_depth_and_classes_stay_as_they_are(place: stoker.Lake) -> None:
    whole = {"size": (40, 50), "fit": "cover", "channels": 1, "samples": "values", "interpolation": "nearest"}
    decode = {"depth": stoker.ImageTransform(dtype="uint16", **whole), "mask": stoker.ImageTransform(**whole)}
    found = by_id(place.sql("SELECT id, depth, mask FROM scenes").stream(batch_size=5, decode=decode), "depth", "mask")
    for row, (values, mask) in found.items():
        assert (values.dtype, mask.dtype) == (np.uint16, np.uint8)
        assert set(np.unique(mask)) <= set(range(7))
        assert set(np.unique(values)) <= set(np.unique(depth(row)))
        if depth(row).shape == (40, 50):
            np.testing.assert_array_equal(values[0], depth(row))
            np.testing.assert_array_equal(mask[0], np.asarray(classes(row)))


def test_masks_follow_their_images(place: stoker.Lake) -> None:
    values = {"channels": 1, "samples": "values", "interpolation": "nearest", **RANDOM}
    query = place.sql("SELECT id, photo, depth, mask FROM scenes")
    decode = {
        "photo": stoker.ImageTransform(**RANDOM),
        "depth": stoker.ImageTransform(dtype="uint16", follow="photo", **values),
        "mask": stoker.ImageTransform(follow="photo", **values),
    }
    found = by_id(query.stream(batch_size=5, seed=3, decode=decode), "depth", "mask")
    for depths, mask in found.values():
        inside = depths > 0
        np.testing.assert_array_equal((depths % 7)[inside], mask[inside])
    alone = {**decode, "mask": stoker.ImageTransform(**values)}
    other = by_id(query.stream(batch_size=5, seed=3, decode=alone), "mask")
    assert any(not np.array_equal(other[row][0], mask) for row, (_, mask) in found.items())
    with pytest.raises(stoker.InvalidRequestError, match="cannot follow column photo"):
        query.stream(batch_size=5, decode={"mask": decode["mask"]})


def test_the_matrix_moves_points_with_their_pixels(place: stoker.Lake) -> None:
    transform = stoker.ImageTransform(
        matrix=True, channels=1, samples="values", dtype="uint16", interpolation="nearest", **RANDOM
    )
    query = place.sql("SELECT id, depth FROM scenes")
    stream = query.stream(batch_size=5, seed=3, decode={"depth": transform})
    for row, (values, matrix) in by_id(stream, "depth", "depth_matrix").items():
        assert (matrix.shape, matrix.dtype) == ((2, 3), np.float32)
        source = depth(row)
        height, width = source.shape
        y, x = np.mgrid[2 : height - 2 : 5, 2 : width - 2 : 5]
        points = matrix @ np.stack([x.ravel() + 0.5, y.ravel() + 0.5, np.ones(x.size)])
        checked = 0
        for (to_x, to_y), at_x, at_y in zip(points.T, x.ravel(), y.ravel(), strict=True):
            if 1 <= to_x < 19 and 1 <= to_y < 23:
                near = source[max(at_y - 2, 0) : at_y + 3, max(at_x - 2, 0) : at_x + 3]
                assert values[0, int(to_y), int(to_x)] in near or values[0, int(to_y), int(to_x)] == 0
                checked += 1
        assert checked > 0 or row >= 0


@pytest.mark.parametrize("layout", ["list", "jagged", "pad"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_boxes_follow_their_images(place: stoker.Lake, framework: str, layout: str) -> None:
    query = place.sql("SELECT id, photo, boxes FROM scenes")
    transform = stoker.ImageTransform(matrix=True, **RANDOM)
    loader = getattr(query, framework)(batch_size=6, seed=3, decode={"photo": transform}, ragged=layout)
    for batch in loader:
        moved = stoker.map_boxes(batch["boxes"], batch["photo_matrix"], size=(24, 20))
        matrices = np.asarray(batch["photo_matrix"])
        rows = list(moved.unbind()) if framework == "torch" and layout == "jagged" else list(moved)
        for row, key in enumerate(batch["id"].tolist()):
            boxes = np.asarray(rows[row]).reshape(-1, 4)
            assert len(boxes) >= key % 3
            for box in range(key % 3):
                corners = [[2 + box, 3], [20 + box, 3], [2 + box, 30], [20 + box, 30]]
                points = np.array([matrices[row] @ [x, y, 1] for x, y in corners])
                low = np.clip(points.min(0), 0, [20, 24])
                high = np.clip(points.max(0), 0, [20, 24])
                np.testing.assert_allclose(boxes[box], [*low, *high], atol=1e-3)


def test_boxes_have_three_formats() -> None:
    matrix = np.array([[[2, 0, 1], [0, 2, 3]]], np.float32)
    boxes = np.array([[[1, 2, 5, 8]]])
    assert stoker.map_boxes(boxes, matrix).tolist() == [[[3, 7, 11, 19]]]
    assert stoker.map_boxes(boxes, matrix, box_format="xywh").tolist() == [[[3, 7, 10, 16]]]
    assert stoker.map_boxes(boxes, matrix, box_format="cxcywh").tolist() == [[[3, 7, 10, 16]]]
    assert stoker.map_boxes(boxes, matrix, size=(10, 9)).tolist() == [[[3, 7, 9, 10]]]
    nested = torch.nested.nested_tensor_from_jagged(torch.tensor(boxes[0]).float(), torch.tensor([0, 1]))
    assert stoker.map_boxes(nested, matrix).values().tolist() == [[3, 7, 11, 19]]
    for wrong, words in [
        ({"boxes": boxes[0], "matrix": matrix}, "boxes have shape"),
        ({"boxes": boxes, "matrix": matrix[0]}, "matrix has shape"),
        ({"boxes": [], "matrix": matrix}, "one row for each matrix"),
        ({"boxes": boxes, "matrix": matrix, "box_format": "yxyx"}, "box_format"),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=words):
            stoker.map_boxes(**wrong)


def test_brightness_and_contrast_are_those_of_pillow(place: stoker.Lake) -> None:
    jitter = stoker.ColorJitter(brightness=(0.5, 0.5))
    query = place.sql("SELECT id, photo FROM scenes WHERE id % 3 = 1")
    options = {"size": 40, "fit": "stretch", "layout": "hwc"}
    plain = by_id(query.stream(batch_size=5, decode={"photo": stoker.ImageTransform(**options)}), "photo")
    darker = stoker.ImageTransform(color_jitter=jitter, **options)
    for row, (image,) in by_id(query.stream(batch_size=5, decode={"photo": darker}), "photo").items():
        expected = np.asarray(ImageEnhance.Brightness(Image.fromarray(plain[row][0])).enhance(0.5)).astype(int)
        assert np.abs(image.astype(int) - expected).max() <= 1
    flatter = stoker.ImageTransform(color_jitter=stoker.ColorJitter(contrast=(0.3, 0.3)), **options)
    for row, (image,) in by_id(query.stream(batch_size=5, decode={"photo": flatter}), "photo").items():
        expected = np.asarray(ImageEnhance.Contrast(Image.fromarray(plain[row][0])).enhance(0.3)).astype(int)
        assert np.abs(image.astype(int) - expected).max() <= 2
    grey = stoker.ImageTransform(color_jitter=stoker.ColorJitter(saturation=(0, 0)), **options)
    for row, (image,) in by_id(query.stream(batch_size=5, decode={"photo": grey}), "photo").items():
        expected = np.asarray(Image.fromarray(plain[row][0]).convert("L")).astype(int)
        assert np.abs(image.astype(int) - expected[..., None]).max() <= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"crops": 0}, "crops"),
        ({"images": 5000}, "images"),
        ({"rotation": (5, -5)}, "rotation"),
        ({"rotation": "much"}, "rotation"),
        ({"rotation": -5}, "must not be negative"),
        ({"color_jitter": 0.5}, "stoker.ColorJitter"),
        ({"samples": "values"}, "channels"),
        ({"samples": "depth"}, "samples"),
        ({"dtype": "uint16"}, "samples"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, words: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=words):
        stoker.ImageTransform(size=8, **options)
    with pytest.raises(stoker.InvalidRequestError, match="hue"):
        stoker.ImageTransform(size=8, color_jitter=stoker.ColorJitter(hue=0.7))


def test_columns_and_options_must_fit(place: stoker.Lake, tmp_path: Path) -> None:
    query = place.sql("SELECT id, photo, views FROM scenes")
    for decode, words in [
        ({"photo": stoker.ImageTransform(size=8, images=2)}, "leave out images"),
        ({"views": stoker.ImageTransform(size=8)}, "images=4"),
        ({"id": stoker.ImageTransform(size=8)}, "not files of images"),
        ({"nothing": stoker.ImageTransform(size=8)}, "the columns are id, photo, views"),
    ]:
        with pytest.raises(stoker.InvalidRequestError, match=words):
            query.stream(batch_size=5, decode=decode)
    taken = place.sql("SELECT views, id AS views_length FROM scenes")
    with pytest.raises(stoker.InvalidRequestError, match="views_length, which exists already"):
        taken.stream(batch_size=5, decode={"views": stoker.ImageTransform(size=8, images=2)})


def test_bad_images_of_lists_are_bad_rows(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    good = encoded(picture(1), "PNG")
    views = [[good, good[:50]] if row == 3 else [good] for row in range(8)]
    lake.create_table("t", {"id": np.arange(8), "views": pa.array(views, pa.list_(pa.large_binary()))})
    decode = {"views": stoker.ImageTransform(size=8, images=2)}
    query = lake.sql("SELECT id, views FROM t")
    with pytest.raises(stoker.DataCorruptError, match=r"row id 3 of t version 1.*number 1 of its list"):
        for _ in query.stream(batch_size=4, shuffle=False, decode=decode):
            pass
    options = {"decode": decode, "bad_rows": "substitute", "max_bad_share": 1}
    rows = [row for batch in query.stream(batch_size=4, **options) for row in batch["id"].tolist()]
    assert len(rows) == 8
    assert 3 not in rows


def test_pillow_reads_what_the_tests_write() -> None:
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encoded(Image.fromarray(depth(1)), "PNG")))), depth(1))


def test_libjpeg_turbo_gives_the_pixels_of_pillow(place: stoker.Lake) -> None:
    query = place.sql("SELECT id, photo FROM scenes WHERE id % 3 = 0")
    transform = stoker.ImageTransform(size=(40, 50), fit="cover", layout="hwc", jpeg="turbo")
    found = by_id(query.stream(batch_size=4, decode={"photo": transform}), "photo")
    checked = 0
    for row, (image,) in found.items():
        expected = np.asarray(Image.open(io.BytesIO(encoded(picture(row), "JPEG"))).convert("RGB"))
        if expected.shape == (40, 50, 3):
            np.testing.assert_array_equal(image, expected)
            checked += 1
    assert checked > 0
    cropped = {"size": (20, 20), "shorter_side": 40, "jpeg": "turbo"}
    parts = by_id(query.stream(batch_size=4, decode={"photo": stoker.ImageTransform(**cropped)}), "photo")
    zune = {**cropped, "jpeg": "zune"}
    others = by_id(query.stream(batch_size=4, decode={"photo": stoker.ImageTransform(**zune)}), "photo")
    for row, (image,) in parts.items():
        assert np.abs(image.astype(int) - others[row][0].astype(int)).mean() < 2.5


def test_scaled_decoding_is_near_full_decoding(tmp_path: Path) -> None:
    y, x = np.mgrid[0:600, 0:900]
    pixels = np.stack([x % 256, y % 256, (x + y) // 6 % 256], axis=-1).astype(np.uint8)
    lake = stoker.connect(str(tmp_path))
    lake.create_table("large", {"photo": pa.array([encoded(Image.fromarray(pixels), "JPEG")], pa.large_binary())})
    images = []
    for jpeg in ("turbo", "turbo_scaled"):
        transform = stoker.ImageTransform(size=64, random_resized_crop=((0.8, 1), (1, 1)), jpeg=jpeg, matrix=True)
        stream = lake.sql("SELECT photo FROM large").stream(batch_size=1, decode={"photo": transform})
        batch = next(iter(stream))
        images.append((batch["photo"][0].astype(int), batch["photo_matrix"][0].copy()))
    assert np.abs(images[0][0] - images[1][0]).mean() < 4
    np.testing.assert_array_equal(images[0][1], images[1][1])


def test_a_missing_libjpeg_turbo_is_named(tmp_path: Path) -> None:
    (tmp_path / "libjpeg.so.62").write_bytes(b"no library")
    request = {**stoker.ImageTransform(size=8, jpeg="turbo")._request(), "libraries": [str(tmp_path / "libjpeg.so.62")]}
    with pytest.raises(stoker.StokerError, match="libjpeg"):
        _native.check_decoder("image", request)
    with pytest.raises(stoker.InvalidRequestError, match="jpeg"):
        stoker.ImageTransform(size=8, jpeg="best")
