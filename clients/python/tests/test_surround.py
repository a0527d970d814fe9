"""HE-AAC, and AAC and Vorbis with more than two channels, are decoded by libavcodec to the samples that PyAV gives."""

from __future__ import annotations

import io
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from test_opus import check_that_a_missing_library_is_named, clips, lake_of, reference, sound
from test_sounds import check_that_row_3_is_bad

import stoker

RATE = 16_000

#: The configuration of AAC-LC of 16 kHz and one channel, and that of HE-AAC of 32 kHz with the same packets.
LOW, HIGH = bytes.fromhex("140856e500"), bytes.fromhex("2c0a880000")


def aac(samples: np.ndarray, container: str) -> bytes:
    """Encodes ``float32[channels, samples]``, without the noise that each decoder makes differently."""
    layout = {1: "mono", 6: "5.1"}[len(samples)]
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream("aac", rate=RATE, layout=layout)
        assert isinstance(stream, av.AudioStream)
        stream.codec_context.options = {"b": "192000", "aac_pns": "0"}
        stream.codec_context.open()
        for start in range(0, samples.shape[1], 1024):
            part = np.ascontiguousarray(samples[:, start : start + 1024])
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout=layout)
            frame.sample_rate, frame.pts = RATE, start
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def high_efficiency() -> bytes:
    """Returns HE-AAC, none of whose bands are replicated: FFmpeg has no encoder for it."""
    file = aac(sound(1, RATE, 1, 2.0), "mp4")
    assert file.count(LOW) == 1
    return file.replace(LOW, HIGH)


def vorbis(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples.T, RATE, format="OGG", subtype="VORBIS")
    return file.getvalue()


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    surround = sound(2, RATE, 6, 2.0)
    return [aac(surround, "mp4"), aac(surround, "matroska"), vorbis(surround)]


def aligned(file: bytes, length: int) -> np.ndarray:
    """Returns PyAV's samples. It keeps the padding at the end."""
    return reference(file)[:, :length]


@pytest.mark.parametrize("start", [0.0, 0.7])
def test_six_channels_are_those_of_pyav(tmp_path: Path, files: list[bytes], start: float) -> None:
    clip = stoker.AudioClip(sample_rate=RATE, seconds=1.0, start=start, mono=False, channels=6)
    query = lake_of(tmp_path, files).sql("SELECT id, sound FROM t")
    found = clips(query.stream(batch_size=2, decode={"sound": clip}))
    first = round(start * RATE)
    for row, file in enumerate(files):
        expected = aligned(file, first + RATE)[:, first:]
        assert found[row][1] == RATE
        np.testing.assert_allclose(found[row][0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("start", [0.0, 0.3])
def test_high_efficiency_is_that_of_pyav(tmp_path: Path, start: float) -> None:
    file = high_efficiency()
    clip = stoker.AudioClip(sample_rate=2 * RATE, seconds=1.0, start=start, mono=False)
    query = lake_of(tmp_path, [file]).sql("SELECT id, sound FROM t")
    samples, length = clips(query.stream(batch_size=1, decode={"sound": clip}))[0]
    first = round(start * 2 * RATE)
    assert length == 2 * RATE
    np.testing.assert_allclose(samples, aligned(file, first + length)[:, first:], atol=1e-5, rtol=0)


def test_damage_is_a_bad_row(tmp_path: Path, files: list[bytes]) -> None:
    good = files[2]
    at = good.index(b"OggS", len(good) // 2) + 300
    bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
    lake = lake_of(tmp_path, [good, good, good, bad])
    decode = {"sound": stoker.AudioClip(sample_rate=RATE, seconds=2.0)}
    check_that_row_3_is_bad(lake, decode, "of the Ogg file is damaged", num_rows=4)


def test_a_missing_library_is_an_error_that_says_what_to_install(tmp_path: Path, files: list[bytes]) -> None:
    lake_of(tmp_path, [files[0]] * 4)
    check_that_a_missing_library_is_named(tmp_path, RATE, "the file has AAC of 6 channels")
