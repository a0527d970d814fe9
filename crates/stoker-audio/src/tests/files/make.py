"""Writes the files of this folder. See README.md."""

import pathlib

import av
import numpy as np
import soundfile

FOLDER = pathlib.Path(__file__).parent
SECONDS = 0.4


def tones(rate: int, channels: int) -> np.ndarray:
    """Returns `float64[samples, channels]`."""
    time = np.arange(round(rate * SECONDS)) / rate
    planes = [
        0.4 * np.sin(2 * np.pi * (330 + 110 * channel) * time) + 0.2 * np.sin(2 * np.pi * (1250 + 200 * channel) * time)
        for channel in range(channels)
    ]
    return np.stack(planes, 1)


def write(name: str, rate: int, channels: int, subtype: str) -> None:
    soundfile.write(FOLDER / name, tones(rate, channels), rate, subtype=subtype)


def encode(name: str, codec: str, rate: int, channels: int, sample_format: str, **options: str) -> None:
    samples = tones(rate, channels).T
    if sample_format.startswith("s16"):
        samples = np.round(samples * 32768).astype(np.int16)
    else:
        samples = samples.astype(np.float32)
    with av.open(FOLDER / name, "w", options={"metadata_header_padding": "0"}) as container:
        stream = container.add_stream(codec, rate=rate, layout={1: "mono", 2: "stereo", 6: "5.1"}[channels])
        stream.codec_context.format = sample_format
        stream.codec_context.options = options
        stream.codec_context.open()
        size = stream.codec_context.frame_size or 1024
        for start in range(0, samples.shape[1], size):
            part = samples[:, start : start + size]
            part = part if sample_format.endswith("p") else part.T.reshape(1, -1)
            layout = stream.codec_context.layout.name
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(part), format=sample_format, layout=layout)
            frame.sample_rate, frame.pts = rate, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def split_pages(name: str, **options: str) -> None:
    """Writes the packets of a file again, on more pages, so that there is something to search. The end is lost."""
    source = FOLDER / f"whole-{name}"
    (FOLDER / name).rename(source)
    with av.open(source) as old, av.open(FOLDER / name, "w", options=options) as new:
        stream = new.add_stream_from_template(old.streams.audio[0])
        for packet in old.demux(old.streams.audio[0]):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)
    source.unlink()


def replicate_bands(source: str, name: str) -> None:
    """Writes a file of AAC-LC of 16 kHz as HE-AAC of 32 kHz. No band is replicated, so that the sound is the same.

    Its AudioSpecificConfig has five bytes: LC, 16 kHz, one channel, and that there is no SBR. The new one has SBR,
    16 kHz, one channel, 32 kHz, LC.
    """
    file = (FOLDER / source).read_bytes()
    assert file.count(bytes.fromhex("140856e500")) == 1
    (FOLDER / name).write_bytes(file.replace(bytes.fromhex("140856e500"), bytes.fromhex("2c0a880000")))


encode("s16.flac", "flac", 8000, 2, "s16", frame_size="512")
write("s24.flac", 8000, 1, "PCM_24")
write("vorbis.ogg", 16000, 2, "VORBIS")
split_pages("vorbis.ogg", page_duration="50000")
write("lame.mp3", 16000, 1, "MPEG_LAYER_III")
encode("joint.mp3", "libmp3lame", 44100, 2, "fltp", b="64000")
encode("aac.m4a", "aac", 16000, 1, "fltp", b="96000", aac_pns="0")
encode("alac.m4a", "alac", 8000, 1, "s16p")
encode("flac.mka", "flac", 8000, 1, "s16")
encode("aac.mka", "aac", 44100, 1, "fltp", b="128000", aac_pns="0")
encode("opus.ogg", "libopus", 16000, 1, "s16", b="16000")
encode("pages.opus", "libopus", 48000, 2, "s16", b="64000")
split_pages("pages.opus", page_duration="50000")
encode("opus.webm", "libopus", 48000, 2, "s16", b="64000")
encode("opus.mp4", "libopus", 48000, 1, "s16", b="32000")
encode("surround.m4a", "aac", 16000, 6, "fltp", b="256000", aac_pns="0")
encode("surround.mka", "aac", 16000, 6, "fltp", b="256000", aac_pns="0")
replicate_bands("aac.m4a", "he_aac.m4a")
write("surround.ogg", 16000, 6, "VORBIS")
split_pages("surround.ogg", page_duration="50000")
