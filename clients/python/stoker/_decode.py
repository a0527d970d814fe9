"""The transforms of the images that a stream decodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stoker import _native
from stoker._errors import InvalidRequestError
from stoker._numbers import whole, whole_or_none

__all__ = ["ImageTransform", "decode_request"]

#: The maximum length of an edge in pixels.
_EDGE_MAX = 65_535


@dataclass(frozen=True)
class ImageTransform:
    """A transform of each image of a column to a tensor of fixed shape; see ``decode`` of :meth:`Query.stream`.

    The steps are, in this order: decode, orient, choose a region, resize it, flip, scale and normalise, lay out. Random
    choices depend only on the seed of the stream, the epoch, the row's position and the name of the column. They are
    therefore the same for any number of ranks, any batch size and after any resume.

    Attributes:
        size: Height and width of the tensor, or one number for a square.
        fit: How images of another aspect ratio are fitted: ``"cover"`` resizes the image until it covers the tensor,
            and crops the rest; ``"stretch"`` resizes each side by its own factor; ``"contain"`` resizes the image until
            all of it fits into the tensor, and fills the remaining pixels.
        crop: The part that ``"cover"`` keeps: ``"center"`` or ``"random"``.
        shorter_side: For ``"cover"``: the length of the shorter side of the resized image before it is cropped, at
            least the longer side of ``size``. Default: the smallest length that covers the tensor.
            ``size=224, shorter_side=256`` is the usual evaluation on ImageNet.
        random_resized_crop: ``True`` or ``(scale, ratio)``, two ranges: takes a random region instead of ``fit``, with
            a share ``scale`` of the image's area and an aspect ratio within ``ratio``. ``True`` means
            ``((0.08, 1.0), (3 / 4, 4 / 3))``.
        horizontal_flip: The probability with which an image is mirrored left to right.
        channels: 3 for RGB, 1 for luminance.
        layout: ``"chw"`` or ``"hwc"``.
        dtype: ``"uint8"``, or ``"float32"`` or ``"float16"`` from 0 to 1.
        mean: The values to subtract from the floats of each channel: three values, of which luminance uses the first.
        std: The values by which the floats are divided after that: three values, of which luminance uses the first.
        interpolation: ``"bilinear"``, ``"nearest"``, ``"box"``, ``"bicubic"`` or ``"lanczos"``; all but ``"nearest"``
            with antialiasing.
        fill: The value, from 0 to 255, of the pixels that ``"contain"`` fills.
        apply_orientation: Whether the EXIF orientation of an image is applied.
        image_bytes_max: The maximum bytes of an image after decoding; larger images are refused. Default: 256 MiB.

    Raises:
        InvalidRequestError: Values out of range, or options that contradict each other.

    Example:
        >>> stoker.ImageTransform(size=(224, 192), dtype="float32").shape
        (3, 224, 192)
    """

    size: int | tuple[int, int]
    fit: Literal["cover", "stretch", "contain"] = "cover"
    crop: Literal["center", "random"] = "center"
    shorter_side: int | None = None
    random_resized_crop: bool | tuple[tuple[float, float], tuple[float, float]] = False
    horizontal_flip: float = 0.0
    channels: int = 3
    layout: Literal["chw", "hwc"] = "chw"
    dtype: Literal["uint8", "float32", "float16"] = "uint8"
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    interpolation: Literal["bilinear", "nearest", "box", "bicubic", "lanczos"] = "bilinear"
    fill: int = 0
    apply_orientation: bool = False
    image_bytes_max: int | None = None

    def __post_init__(self) -> None:
        _native.check_transform(self._request())

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the tensor of one image."""
        height, width = self._size()
        return (self.channels, height, width) if self.layout == "chw" else (height, width, self.channels)

    def _size(self) -> tuple[int, int]:
        sides = tuple(self.size) if isinstance(self.size, (tuple, list)) else (self.size, self.size)
        if len(sides) != 2:
            raise InvalidRequestError(f"size is {self.size!r}; it must be a number, or height and width")
        return whole("size", sides[0], 1, _EDGE_MAX), whole("size", sides[1], 1, _EDGE_MAX)

    def _request(self) -> _native.TransformRequest:
        height, width = self._size()
        crop = self.random_resized_crop
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != 3:
                raise InvalidRequestError(f"{name} is {values!r}; it must have a value for each of 3 channels")
        return {
            "height": height,
            "width": width,
            "fit": self.fit,
            "crop": self.crop,
            "shorter_side": whole_or_none("shorter_side", self.shorter_side, 1, _EDGE_MAX),
            "random_resized_crop": ((0.08, 1.0), (3 / 4, 4 / 3)) if crop is True else crop or None,
            "horizontal_flip": _number("horizontal_flip", self.horizontal_flip),
            "channels": whole("channels", self.channels, 1, 3),
            "layout": self.layout,
            "dtype": self.dtype,
            "mean": None if self.mean is None else [_number("mean", value) for value in self.mean],
            "std": None if self.std is None else [_number("std", value) for value in self.std],
            "interpolation": self.interpolation,
            "fill": whole("fill", self.fill, 0, 255),
            "apply_orientation": bool(self.apply_orientation),
            "image_bytes_max": whole_or_none("image_bytes_max", self.image_bytes_max, 1),
        }


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidRequestError(f"{name} is {value!r}; it must be a number") from None


def decode_request(
    decode: Mapping[str, ImageTransform] | None, num_threads: int | None
) -> _native.DecodeRequest | None:
    """Returns the columns to decode in the form of the native module, or ``None`` if there are none.

    Raises:
        InvalidRequestError: A value that is no :class:`ImageTransform`, or a number of threads out of range.
    """
    threads = whole_or_none("decode_threads", num_threads, 1, 1024)
    if not decode:
        return None
    if not isinstance(decode, Mapping):
        raise InvalidRequestError(f"decode is a {type(decode).__name__}; it must be a dict of ImageTransforms")
    for name, transform in decode.items():
        if not isinstance(transform, ImageTransform):
            raise InvalidRequestError(f"decode[{name!r}] is {transform!r}; it must be a stoker.ImageTransform")
    columns = [(name, transform._request()) for name, transform in decode.items()]
    return {"columns": columns, "num_threads": threads or 0}
