"""Opus is decoded by libavcodec, in Ogg, WebM and MP4, to the samples that PyAV gives."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pytest
from test_sounds import check_that_row_3_is_bad

import stoker

NUM_ROWS = 12
RATE = 48_000

#: The container, the application, the rate before encoding and the channels of each third row.
KINDS = [
    ("ogg", "audio", 48_000, 2),
    ("webm", "voip", 24_000, 1),
    ("ogg", "voip", 16_000, 1),
    ("webm", "audio", 48_000, 2),
]

#: The largest difference to PyAV of samples that were decoded from the beginning, and from two seconds before.
SAME, NEARLY = 1e-6, 1e-5


def encoded(
    samples: np.ndarray,
    rate: int,
    container: str = "ogg",
    application: str = "audio",
    bitrate: int = 48_000,
    **options: str,
) -> bytes:
    """Encodes ``float32[channels, samples]``."""
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[len(samples)]
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream("libopus", rate=rate, layout=layout)
        assert isinstance(stream, av.AudioStream)
        stream.codec_context.format = av.AudioFormat("flt")
        stream.codec_context.options = {"b": str(bitrate), "application": application, **options}
        stream.codec_context.open()
        size = stream.codec_context.frame_size
        for start in range(0, samples.shape[1], size):
            part = np.ascontiguousarray(samples[:, start : start + size].T.reshape(1, -1))
            frame = av.AudioFrame.from_ndarray(part, format="flt", layout=layout)
            frame.sample_rate, frame.pts = rate, start
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def sound(row: int, rate: int, channels: int, seconds: float) -> np.ndarray:
    """Returns a chirp with noise, ``float32[channels, samples]``."""
    time = np.arange(round(rate * seconds)) / rate
    planes = [0.3 * np.sin(2 * np.pi * (200 + 30 * row + 90 * c) * time * (1 + time / 9)) for c in range(channels)]
    noise = np.random.default_rng(row).standard_normal((channels, len(time)))
    return (np.stack(planes) + 0.03 * noise).astype(np.float32)


def file_of(row: int) -> bytes:
    container, application, rate, channels = KINDS[row % len(KINDS)]
    return encoded(sound(row, rate, channels, 3.0 + row * 0.171), rate, container, application)


def reference(file: bytes) -> np.ndarray:
    """Returns the samples as PyAV decodes them, of shape (channels, samples)."""
    with av.open(io.BytesIO(file)) as container:
        return np.concatenate([frame.to_ndarray() for frame in container.decode(audio=0)], axis=1)


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    return [file_of(row) for row in range(NUM_ROWS)]


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory, files: list[bytes]) -> stoker.Lake:
    """A lake with the table `sounds`."""
    lake = stoker.connect(str(tmp_path_factory.mktemp("opus")))
    starts = 1.0 + np.arange(NUM_ROWS) * 0.123
    lake.create_table(
        "sounds", {"id": np.arange(NUM_ROWS), "sound": pa.array(files, pa.large_binary()), "start": starts}
    )
    return lake


def lake_of(folder: Path, values: list[bytes]) -> stoker.Lake:
    lake = stoker.connect(str(folder))
    lake.create_table("t", {"id": np.arange(len(values)), "sound": pa.array(values, pa.large_binary())})
    return lake


def clips(stream: stoker.Stream) -> dict[int, tuple[np.ndarray, int]]:
    found = {}
    for batch in stream:
        rows = zip(batch["id"], batch["sound"], batch["sound_length"], batch.valid, strict=True)
        found.update({int(row): (clip.copy(), int(length)) for row, clip, length, valid in rows if valid})
    return found


def channels_of(samples: np.ndarray, channels: int) -> np.ndarray:
    return np.repeat(samples, channels, 0) if len(samples) == 1 else samples


def test_samples_are_those_of_pyav(place: stoker.Lake, files: list[bytes]) -> None:
    clip = stoker.AudioClip(sample_rate=RATE, seconds=6.0, mono=False)
    found = clips(place.sql("SELECT id, sound FROM sounds").stream(batch_size=5, seed=7, decode={"sound": clip}))
    assert sorted(found) == list(range(NUM_ROWS))
    for row, file in enumerate(files):
        expected = channels_of(reference(file), 2)
        samples, length = found[row]
        assert length == expected.shape[1] == round(RATE * (3.0 + row * 0.171)), KINDS[row % len(KINDS)]
        np.testing.assert_allclose(samples[:, :length], expected, atol=SAME, rtol=0)
        assert not samples[:, length:].any()


@pytest.mark.parametrize("start", [0.7, "start"])
def test_clips_begin_where_they_should(place: stoker.Lake, files: list[bytes], start: float | str) -> None:
    clip = stoker.AudioClip(sample_rate=RATE, seconds=0.5, start=start)
    found = clips(place.sql("SELECT id, sound, start FROM sounds").stream(batch_size=5, decode={"sound": clip}))
    for row, file in enumerate(files):
        first = round((start if isinstance(start, float) else 1.0 + row * 0.123) * RATE)
        expected = reference(file)[:, first : first + clip.shape[1]].mean(0, keepdims=True)
        assert found[row][1] == expected.shape[1]
        np.testing.assert_allclose(found[row][0][:, : expected.shape[1]], expected, atol=NEARLY, rtol=0)


def test_random_starts_and_other_rates(place: stoker.Lake, files: list[bytes]) -> None:
    clip = stoker.AudioClip(sample_rate=16_000, seconds=0.5, start="random")
    stream = place.sql("SELECT id, sound FROM sounds").stream(batch_size=5, seed=3, decode={"sound": clip})
    first, second = clips(stream), clips(stream)
    again = clips(place.sql("SELECT id, sound FROM sounds").stream(batch_size=4, seed=3, decode={"sound": clip}))
    for row in range(NUM_ROWS):
        np.testing.assert_array_equal(first[row][0], again[row][0])
        assert not np.array_equal(first[row][0], second[row][0])
        assert first[row][1] == 8_000
    whole = stoker.AudioClip(sample_rate=16_000, seconds=2.0)
    for row, (samples, length) in clips(
        place.sql("SELECT id, sound FROM sounds").stream(batch_size=5, decode={"sound": whole})
    ).items():
        expected = np.abs(np.fft.rfft(reference(files[row]).mean(0)[: 2 * RATE]))[:4_000]
        assert length == 32_000
        np.testing.assert_allclose(np.abs(np.fft.rfft(samples[0]))[:4_000] * 3, expected, atol=expected.max() * 0.01)


def test_late_clips_of_long_sounds(tmp_path: Path) -> None:
    values = [encoded(sound(1, RATE, 2, 20.0), RATE, container) for container in ("ogg", "webm")]
    lake = lake_of(tmp_path, values)
    clip = stoker.AudioClip(sample_rate=RATE, seconds=1.0, start=15.0, mono=False)
    found = clips(lake.sql("SELECT id, sound FROM t").stream(batch_size=2, decode={"sound": clip}))
    for row, value in enumerate(values):
        expected = reference(value)[:, 15 * RATE : 16 * RATE]
        np.testing.assert_allclose(found[row][0], expected, atol=NEARLY, rtol=0)


def test_mp4_and_output_gain_and_surround(tmp_path: Path) -> None:
    ogg = encoded(sound(2, RATE, 1, 1.0), RATE)
    header = ogg.index(b"OpusHead")
    louder = bytearray(ogg)
    louder[header + 16 : header + 18] = (256 * 6).to_bytes(2, "little")
    page = bytes(louder[:22]) + bytes(4) + bytes(louder[26:47])
    louder[22:26] = checksum(page).to_bytes(4, "little")
    surround_file = encoded(sound(3, RATE, 6, 1.0), RATE, mapping_family="1")
    values = [encoded(sound(2, RATE, 1, 1.0), RATE, "mp4"), bytes(louder), surround_file]
    lake = lake_of(tmp_path, values)
    clip = stoker.AudioClip(sample_rate=RATE, seconds=1.0)
    found = clips(lake.sql("SELECT id, sound FROM t").stream(batch_size=3, decode={"sound": clip}))
    for row, value in enumerate(values):
        expected = reference(value).mean(0, keepdims=True)[:, :RATE]
        np.testing.assert_allclose(found[row][0], expected, atol=SAME, rtol=0)
    ratio = np.abs(found[1][0]).max() / np.abs(reference(ogg)).max()
    assert abs(ratio - 10 ** (6 / 20)) < 1e-3
    surround = stoker.AudioClip(sample_rate=RATE, seconds=1.0, mono=False, channels=6)
    stream = lake.sql("SELECT id, sound FROM t WHERE id = 2").stream(batch_size=1, decode={"sound": surround})
    np.testing.assert_allclose(clips(stream)[2][0], reference(values[2])[:, :RATE], atol=SAME, rtol=0)


def checksum(page: bytes) -> int:
    """The checksum of an Ogg page whose field for it is zero."""
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ 0x04C11DB7 if crc >> 31 else crc << 1) & 0xFFFFFFFF
    return crc


def flipped(file: bytes, at: int) -> bytes:
    return file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("checksum", "page 2 of the Ogg file is damaged"),
        ("header", "page 0 of the Ogg file is damaged"),
        ("cut in the headers", "ends before the headers"),
        ("end", "tells"),
    ],
)
def test_damaged_files_are_bad_rows(tmp_path: Path, damage: str, words: str) -> None:
    good = encoded(sound(1, RATE, 1, 3.0), RATE)
    pages = [at for at in range(len(good)) if good.startswith(b"OggS", at)]
    bad = {
        "checksum": flipped(good, pages[2] + 200),
        "header": flipped(good, pages[0] + 38),
        "cut in the headers": good[: pages[1] + 10],
        "end": good[: pages[-1]] + page_with_granule(good[pages[-1] :], 1 << 40),
    }[damage]
    lake = lake_of(tmp_path, [good, good, good, bad])
    decode = {"sound": stoker.AudioClip(sample_rate=RATE, seconds=4.0)}
    check_that_row_3_is_bad(lake, decode, words, num_rows=4)


def page_with_granule(page: bytes, granule: int) -> bytes:
    changed = page[:6] + granule.to_bytes(8, "little") + page[14:22] + bytes(4) + page[26:]
    return changed[:22] + checksum(changed).to_bytes(4, "little") + changed[26:]


def check_that_a_missing_library_is_named(folder: Path, sample_rate: int, words: str) -> None:
    """Checks the error of a loop over the sounds of table ``t`` in a process that has no libavcodec."""
    program = f"""
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "av" else find(name, *rest)
        import stoker
        query = stoker.connect({str(folder)!r}).sql("SELECT id, sound FROM t")
        decode = {{"sound": stoker.AudioClip(sample_rate={sample_rate}, seconds=0.5)}}
        try:
            for _ in query.stream(batch_size=2, decode=decode, bad_rows="substitute", max_bad_share=1):
                pass
        except stoker.StokerError as error:
            print(type(error).__name__, error)
    """
    environment = {name: value for name, value in os.environ.items() if name != "STOKER_LIBAV"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, env=environment, check=True
    )
    if done.stdout == "" and done.stderr == "":
        pytest.skip("the system has a libavcodec")
    assert "column sound" in done.stdout
    assert f"{words}, which libavcodec decodes: no libavcodec of a major version from 59 to 62" in done.stdout
    assert "pip install av" in done.stdout


def test_a_missing_library_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    lake_of(tmp_path, [encoded(sound(1, RATE, 1, 0.5), RATE)] * 4)
    check_that_a_missing_library_is_named(tmp_path, RATE, "the file has Opus")
