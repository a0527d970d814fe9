"""Sounds are sent as files, and decoded to clips in the client."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import soundfile

import stoker

NUM_ROWS = 20
RATE = 22_050

#: The formats of the files: format and subtype of soundfile, and whether samples come back as they were.
FORMATS = [
    ("WAV", "PCM_16", True),
    ("WAV", "PCM_24", True),
    ("WAV", "FLOAT", True),
    ("FLAC", "PCM_16", True),
    ("FLAC", "PCM_24", True),
    ("OGG", "VORBIS", False),
    ("MP3", "MPEG_LAYER_III", False),
]


def tone(row: int) -> np.ndarray:
    """Returns a chirp of two channels, whose length depends on the row."""
    length = RATE // 2 + row * 700
    time = np.arange(length) / RATE
    left = 0.4 * np.sin(2 * np.pi * (200 + 40 * row) * time) + 0.1 * np.sin(2 * np.pi * 3000 * time * (1 + time / 3))
    return np.stack([left, 0.5 * left[::-1]], axis=1).astype(np.float32)


def encoded(samples: np.ndarray, kind: str, subtype: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=kind, subtype=subtype)
    return file.getvalue()


def files() -> list[bytes]:
    return [encoded(tone(row), *FORMATS[row % len(FORMATS)][:2]) for row in range(NUM_ROWS)]


def reference(file: bytes) -> np.ndarray:
    """Returns the samples as soundfile reads them, of shape (channels, samples)."""
    return soundfile.read(io.BytesIO(file), dtype="float32", always_2d=True)[0].T


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> stoker.Lake:
    """A lake with the table `sounds`."""
    lake = stoker.connect(str(tmp_path_factory.mktemp("sounds")))
    starts = np.arange(NUM_ROWS) * 0.02
    sounds = pa.array(files(), pa.large_binary())
    lake.create_table("sounds", {"id": np.arange(NUM_ROWS), "sound": sounds, "start": starts})
    return lake


def clips(stream: stoker.Stream) -> dict[int, tuple[np.ndarray, int]]:
    found = {}
    for batch in stream:
        rows = zip(batch["id"], batch["sound"], batch["sound_length"], batch.valid, strict=True)
        found.update({int(row): (clip.copy(), int(length)) for row, clip, length, valid in rows if valid})
    return found


def check(found: np.ndarray, expected: np.ndarray, row: int) -> None:
    """Compares samples: bit by bit for lossless formats, within 1e-3 for the others."""
    if FORMATS[row % len(FORMATS)][2]:
        np.testing.assert_array_equal(found, expected, err_msg=str(FORMATS[row % len(FORMATS)]))
    else:
        np.testing.assert_allclose(found, expected, atol=1e-3, err_msg=str(FORMATS[row % len(FORMATS)]))


def test_samples_are_those_of_soundfile(place: stoker.Lake) -> None:
    clip = stoker.AudioClip(sample_rate=RATE, seconds=1.5, mono=False)
    stream = place.sql("SELECT id, sound FROM sounds").stream(batch_size=6, seed=7, decode={"sound": clip})
    assert stoker.tensor_shape(stream.schema.field("sound")) == clip.shape == (2, round(1.5 * RATE))
    assert stream.schema.names == ["id", "sound", "sound_length"]
    found = clips(stream)
    assert sorted(found) == list(range(NUM_ROWS))
    for row, file in enumerate(files()):
        samples, length = found[row]
        expected = reference(file)[:, : clip.shape[1]]
        assert (samples.dtype, length) == (np.float32, expected.shape[1])
        check(samples[:, :length], expected, row)
        assert not samples[:, length:].any()


def test_one_channel_is_the_mean(place: stoker.Lake) -> None:
    clip = stoker.AudioClip(sample_rate=RATE, seconds=0.5)
    found = clips(place.sql("SELECT id, sound FROM sounds").stream(batch_size=6, decode={"sound": clip}))
    for row, file in enumerate(files()):
        expected = reference(file)[:, : clip.shape[1]].mean(0, keepdims=True)
        np.testing.assert_allclose(found[row][0], expected, atol=1e-6 if FORMATS[row % len(FORMATS)][2] else 1e-3)


@pytest.mark.parametrize("start", [0.1, "start"])
def test_clips_begin_where_they_should(place: stoker.Lake, start: float | str) -> None:
    clip = stoker.AudioClip(sample_rate=RATE, seconds=0.2, start=start, mono=False)
    query = place.sql("SELECT id, sound, start FROM sounds")
    found = clips(query.stream(batch_size=6, decode={"sound": clip}))
    for row, file in enumerate(files()):
        first = round((start if isinstance(start, float) else row * 0.02) * RATE)
        check(found[row][0], reference(file)[:, first : first + clip.shape[1]], row)


def test_random_starts_are_functions_of_seed_and_position(place: stoker.Lake) -> None:
    clip = stoker.AudioClip(sample_rate=RATE, seconds=0.25, start="random", mono=False)
    query = place.sql("SELECT id, sound FROM sounds")
    stream = query.stream(batch_size=6, seed=7, decode={"sound": clip})
    first, second = clips(stream), clips(stream)
    halves: dict[int, tuple[np.ndarray, int]] = {}
    for rank in range(2):
        halves |= clips(query.stream(batch_size=3, seed=7, rank=rank, world_size=2, decode={"sound": clip}))
    for row in range(NUM_ROWS):
        np.testing.assert_array_equal(first[row][0], halves[row][0])
        assert not np.array_equal(first[row][0], second[row][0])
        if FORMATS[row % len(FORMATS)][2]:
            whole, part = reference(files()[row]), first[row][0]
            places = np.flatnonzero(np.isclose(whole[0], part[0, 0], atol=0))
            assert any(np.array_equal(whole[:, at : at + part.shape[1]], part) for at in places)


def test_resampled_sounds_keep_their_tones(place: stoker.Lake) -> None:
    clip = stoker.AudioClip(sample_rate=16_000, seconds=0.5)
    found = clips(place.sql("SELECT id, sound FROM sounds").stream(batch_size=6, decode={"sound": clip}))
    for row, file in enumerate(files()):
        whole = reference(file)[:, : RATE // 2].mean(0)
        spectrum, expected = np.abs(np.fft.rfft(found[row][0][0])), np.abs(np.fft.rfft(whole))
        assert abs(int(spectrum.argmax()) - int(expected.argmax())) <= 1, "bins of 2 Hz each"
        np.testing.assert_allclose(np.sqrt((found[row][0] ** 2).mean()), np.sqrt((whole**2).mean()), rtol=0.02)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: b"", "empty"),
        (lambda file: b"no sound at all, only text", "sound"),
        (lambda file: file[:60] + file[61:200], ""),
        (None, "null"),
    ],
)
def test_bad_sounds_are_bad_rows(
    tmp_path_factory: pytest.TempPathFactory, damage: Callable[[bytes], bytes] | None, words: str
) -> None:
    lake = stoker.connect(str(tmp_path_factory.mktemp("bad")))
    good = encoded(tone(1), "FLAC", "PCM_16")
    values = [good if row != 3 else None if damage is None else damage(good) for row in range(8)]
    lake.create_table("t", {"id": np.arange(8), "sound": pa.array(values, pa.large_binary())})
    decode = {"sound": stoker.AudioClip(sample_rate=RATE, seconds=0.5)}
    check_that_row_3_is_bad(lake, decode, words, num_rows=8)


def check_that_row_3_is_bad(lake: stoker.Lake, decode: dict[str, stoker.AudioClip], words: str, num_rows: int) -> None:
    """Checks that a loop over table ``t`` names the third row, and that another row can be substituted for it."""
    query = lake.sql("SELECT id, sound FROM t")
    pattern = f"column sound, row id 3 of t version 1.*the sound cannot be decoded.*{words}"
    with pytest.raises(stoker.DataCorruptError, match=pattern):
        for _ in query.stream(batch_size=4, shuffle=False, decode=decode):
            pass
    options = {"decode": decode, "bad_rows": "substitute", "max_bad_share": 1}
    rows = [row for batch in query.stream(batch_size=num_rows // 2, **options) for row in batch["id"].tolist()]
    assert len(rows) == num_rows
    assert 3 not in rows


def test_clips_that_do_not_fit_are_named(place: stoker.Lake) -> None:
    query = place.sql("SELECT id, sound, start, start > 0 AS flag FROM sounds")
    for clip, error, words in [
        (stoker.AudioClip(RATE, 0.5, start=100.0), stoker.DataCorruptError, "100"),
        (stoker.AudioClip(RATE, 0.5, mono=False, channels=3), stoker.DataCorruptError, "channels"),
        (stoker.AudioClip(RATE, 0.5, start="nowhere"), stoker.InvalidRequestError, "column nowhere, it does not exist"),
        (stoker.AudioClip(RATE, 0.5, start="flag"), stoker.InvalidRequestError, "columns of numbers, not of Boolean"),
    ]:
        with pytest.raises(error, match=words):
            for _ in query.stream(batch_size=4, decode={"sound": clip}):
                pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sample_rate": 0}, "sample_rate"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": 1e12}, "seconds"),
        ({"start": -1.0}, "start"),
        ({"start": ""}, "start"),
        ({"start": True}, "start"),
        ({"mono": False, "channels": 0}, "channels"),
        ({"audio_bytes_max": 10}, "bytes_max"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, words: str) -> None:
    with pytest.raises(stoker.InvalidRequestError, match=words):
        stoker.AudioClip(**{"sample_rate": 16_000, "seconds": 1.0, **options})
