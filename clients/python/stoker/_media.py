"""Clips of sound and video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stoker import _native
from stoker._errors import InvalidRequestError
from stoker._libraries import libraries
from stoker._numbers import number, whole, whole_or_none

__all__ = ["AudioClip", "VideoClip"]

#: The maximum of numbers that the native module checks itself.
_ANY = 2**31 - 1


@dataclass(frozen=True)
class AudioClip:
    """A part of each sound of a column; see ``decode`` of :meth:`Query.stream`.

    The array is float32 of shape ``(channels, samples)``.
    Reads WAV, FLAC, MP3, Ogg Vorbis, AAC, ALAC, FLAC and MP3 in MP4 and Matroska, and Opus in Ogg, Matroska, WebM and
    MP4. Opus, HE-AAC, and AAC and Vorbis with more than two channels need libavcodec, see :class:`VideoClip`. Full
    scale is -1 to 1. A sound that ends before the clip does is followed by zeros; batches say under
    ``<column>_length`` how many samples are sound.

    Attributes:
        sample_rate: The sample rate of the array in Hz; sounds with another rate are resampled.
        seconds: The length of the array: it has ``round(seconds * sample_rate)`` samples.
        start: Where the clip begins: seconds, the name of a column of the query that holds seconds for each row, or
            ``"random"``: a function of the stream's seed, the epoch, the row's position and the name of the column.
        mono: Whether the array has one channel, the mean of all channels of the sound.
        channels: With ``mono=False``: the number of channels. A sound must have as many, or one, which is repeated.
        audio_bytes_max: The maximum bytes of the samples that decoding one sound may hold. Default: 256 MiB.

    Raises:
        InvalidRequestError: Values out of range.

    Example:
        >>> stoker.AudioClip(sample_rate=16_000, seconds=10).shape
        (1, 160000)
    """

    sample_rate: int
    seconds: float
    start: float | str = 0.0
    mono: bool = True
    channels: int = 2
    audio_bytes_max: int | None = None

    def __post_init__(self) -> None:
        _native.check_decoder("audio", self._request())

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the array of one row."""
        return 1 if self.mono else self.channels, round(self.seconds * self.sample_rate)

    def _request(self) -> _native.AudioRequest:
        kind, seconds, column = _start(self.start, "audio clip")
        return {
            "sample_rate": whole("sample_rate", self.sample_rate, 1, _ANY),
            "seconds": number("seconds", self.seconds),
            "start": "seconds" if kind == "frame" else kind,
            "start_seconds": seconds,
            "start_column": column,
            "channels": 1 if self.mono else whole("channels", self.channels, 1, 2**16 - 1),
            "bytes_max": whole_or_none("audio_bytes_max", self.audio_bytes_max, 1),
            "libraries": _libav(),
        }


@dataclass(frozen=True)
class VideoClip:
    """Some frames of each video of a column, as uint8 RGB; see ``decode`` of :meth:`Query.stream`.

    Reads MP4, MOV, Matroska and WebM with H.264, HEVC, AV1, VP9 and VP8. Decoding begins at the key frame before the
    clip. It needs libavcodec of FFmpeg 5 to 8: ``pip install stoker[video]`` brings it in the package ``av``; a library
    of the system is found too, and the environment variable ``STOKER_LIBAV`` names others.

    Batches say under ``<column>_length`` how many frames of the clip are in the video, and under ``<column>_mask``
    which ones; the others repeat the last or first frame. With ``within``, these are the frames of a part of the video.

    Attributes:
        frames: The number of frames.
        stride: The distance between two frames of the clip, in frames of the video.
        start: Where the clip begins: a frame (``int``), seconds (``float``), the name of a column of the query that
            holds a frame (integers) or seconds (floats) for each row, ``"random"``, or ``"uniform"``: the frames are
            spread over the whole video. Random starts are functions of the stream's seed, the epoch, the row's position
            and the name of the column.
        delta_timestamps: The times of the frames in seconds relative to the start, instead of ``stride``, as in
            LeRobot: the frame with the nearest time is taken.
        within: The names of two columns of the query, which tell for each row the part of the video in which all frames
            of its clip lie, such as an episode: its begin and its end, which is not part of it. As for ``start``,
            integers are frames and floats are seconds. Frames outside of the part are masked, as those outside of the
            video are.
        size: Height and width to which frames are resized, or one number for a square.
        layout: ``"tchw"`` (frames, channels, height, width), ``"thwc"`` or ``"cthw"``.
        interpolation: ``"bilinear"``, ``"nearest"``, ``"box"``, ``"bicubic"`` or ``"lanczos"``.
        apply_orientation: Whether frames are rotated as the file says.
        pixels_max: The maximum pixels of a frame of the video; larger ones are refused. Default: 2**26.

    Raises:
        InvalidRequestError: Values out of range, options that contradict each other, or no libavcodec.
    """

    frames: int
    stride: int = 1
    start: int | float | str = "random"
    delta_timestamps: Sequence[float] | None = None
    within: tuple[str, str] | None = None
    size: int | tuple[int, int] = 224
    layout: Literal["tchw", "thwc", "cthw"] = "tchw"
    interpolation: Literal["bilinear", "nearest", "box", "bicubic", "lanczos"] = "bilinear"
    apply_orientation: bool = True
    pixels_max: int | None = None

    def __post_init__(self) -> None:
        _native.check_decoder("video", self._request())

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the array of one row."""
        height, width = self._size()
        if self.layout == "tchw":
            return self.frames, 3, height, width
        return (self.frames, height, width, 3) if self.layout == "thwc" else (3, self.frames, height, width)

    def _size(self) -> tuple[int, int]:
        sides = tuple(self.size) if isinstance(self.size, (tuple, list)) else (self.size, self.size)
        if len(sides) != 2:
            raise InvalidRequestError(f"size is {self.size!r}; it must be a number, or height and width")
        return whole("size", sides[0], 1, _ANY), whole("size", sides[1], 1, _ANY)

    def _request(self) -> _native.VideoRequest:
        kind, seconds, column = _start(self.start, "video clip", others=("uniform",))
        times = self.delta_timestamps
        return {
            "frames": whole("frames", self.frames, 1, _ANY),
            "stride": whole("stride", self.stride, 1, _ANY),
            "start": kind,
            "start_seconds": seconds,
            "start_column": column,
            "offsets": None if times is None else [number("delta_timestamps", time) for time in times],
            "within": _within(self.within),
            "size": self._size(),
            "layout": self.layout,
            "interpolation": self.interpolation,
            "apply_orientation": bool(self.apply_orientation),
            "pixels_max": whole_or_none("pixels_max", self.pixels_max, 1),
            "libraries": _libav(),
        }


def _within(within: object) -> tuple[str, str] | None:
    """Returns the names of the columns that bound clips."""
    if within is None:
        return None
    if isinstance(within, (tuple, list)) and len(within) == 2:
        begin, end = within
        if isinstance(begin, str) and isinstance(end, str):
            return begin, end
    raise InvalidRequestError(f"video clip: within is {within!r}; it must be the names of two columns")


def _libav() -> list[str]:
    """Returns the files and folders in which libavcodec may be."""
    return libraries("STOKER_LIBAV", "av", ("av.libs",))


def _start(start: object, clip: str, others: Sequence[str] = ()) -> tuple[str, float, str]:
    """Returns the kind of a start, its number, and its column."""
    if isinstance(start, str):
        return (start, 0.0, "") if start in ("random", *others) else ("column", 0.0, start)
    if isinstance(start, bool):
        raise InvalidRequestError(f"{clip}: start is {start!r}; it must be a number or a string")
    kind = "frame" if isinstance(start, int) or hasattr(start, "__index__") else "seconds"
    return kind, number("start", start), ""
