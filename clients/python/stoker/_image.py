"""The transforms of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stoker import _native
from stoker._errors import InvalidRequestError
from stoker._libraries import libraries
from stoker._numbers import number, whole, whole_or_none

__all__ = ["ColorJitter", "ImageTransform"]

#: The maximum length of an edge in pixels.
_EDGE_MAX = 65_535

#: The maximum number of crops of an image, and of images of a row.
_COUNT_MAX = 4096


@dataclass(frozen=True)
class ColorJitter:
    """Random changes of the colours of an image, as torchvision's ``ColorJitter`` makes them, in a random order.

    Each option is a range of factors, or one number ``f`` for the range from ``1 - f`` (at least 0) to ``1 + f``.

    Attributes:
        brightness: The factor of all values.
        contrast: The factor of the distance of the values from the mean luminance of the image.
        saturation: The factor of the distance of the values from the luminance of their pixel.
        hue: The share of the circle of colours by which hues are rotated: a range within -0.5 to 0.5, or one number
            ``f`` for the range from ``-f`` to ``f``.

    Raises:
        InvalidRequestError: Values that are no numbers or ranges.
    """

    brightness: float | tuple[float, float] = 0.0
    contrast: float | tuple[float, float] = 0.0
    saturation: float | tuple[float, float] = 0.0
    hue: float | tuple[float, float] = 0.0

    def __post_init__(self) -> None:
        self._request()

    def _request(self) -> _native.JitterRequest:
        return {
            "brightness": _factors("brightness", self.brightness),
            "contrast": _factors("contrast", self.contrast),
            "saturation": _factors("saturation", self.saturation),
            "hue": _range("hue", self.hue, 0.0),
        }


@dataclass(frozen=True)
class ImageTransform:
    """A transform of each image of a column to a tensor of fixed shape; see ``decode`` of :meth:`Query.stream`.

    The steps are, in this order: decode, orient, choose a region, resize and rotate it, change its colours, flip, scale
    and normalise, lay out. Random
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
        dtype: ``"uint8"``, or ``"float32"`` or ``"float16"`` from 0 to 1; ``"uint16"`` for ``samples="values"``.
        mean: The values to subtract from the floats of each channel: three values, of which luminance uses the first.
        std: The values by which the floats are divided after that: three values, of which luminance uses the first.
        interpolation: ``"bilinear"``, ``"nearest"``, ``"box"``, ``"bicubic"`` or ``"lanczos"``; all but ``"nearest"``
            with antialiasing.
        fill: The value, from 0 to 255, of the pixels that ``"contain"`` or a rotation leaves empty.
        apply_orientation: Whether the EXIF orientation of an image is applied.
        rotation: The range of angles in degrees, counter-clockwise, by which the image is rotated around the centre of
            its region; one number ``d`` stands for ``(-d, d)``. Corners come from the image where the image has them.
        color_jitter: Random changes of the colours.
        samples: ``"colors"``, or ``"values"`` for class masks and depth: the palette indices or grey values of PNG
            files as they are, also of 16 bits, with ``channels=1``. They are usually resized with
            ``interpolation="nearest"``.
        crops: The number of crops of each image: the tensor gets a first dimension of this size. Each crop has random
            choices of its own.
        images: For columns of lists of images: the number of images of a row, the size of the tensor's first dimension.
            Of a longer list the first ones are decoded; behind a shorter list the tensor is zero. Batches say under
            ``<column>_length`` how many images of each row are decoded.
        matrix: Whether batches have under ``<column>_matrix`` where the pixels of each image are in its tensor:
            float32 of shape (2, 3), which maps (x, y, 1) of the file's image to x and y of the tensor, with the
            dimensions of images and crops before it. :func:`stoker.map_boxes` moves boxes by it.
        follow: The name of another decoded column whose random choices this one repeats, so that a mask gets the
            regions, flips and rotations of its image.
        image_bytes_max: The maximum bytes of an image after decoding; larger images are refused. Default: 256 MiB.
        jpeg: What decodes JPEG files: ``"zune"``, which is part of Stoker; ``"turbo"`` for libjpeg-turbo, which is
            faster; ``"turbo_scaled"``, which also decodes large images at a half, a quarter or an eighth of their size,
            where at least twice the tensor's size is left. Each gives slightly other pixels, so that a process without
            libjpeg-turbo refuses. The library is that of the package ``pillow``, or of the system; the environment
            variable ``STOKER_LIBJPEG`` names others.

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
    dtype: Literal["uint8", "uint16", "float32", "float16"] = "uint8"
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    interpolation: Literal["bilinear", "nearest", "box", "bicubic", "lanczos"] = "bilinear"
    fill: int = 0
    apply_orientation: bool = False
    rotation: float | tuple[float, float] = 0.0
    color_jitter: ColorJitter | None = None
    samples: Literal["colors", "values"] = "colors"
    crops: int | None = None
    images: int | None = None
    matrix: bool = False
    follow: str | None = None
    image_bytes_max: int | None = None
    jpeg: Literal["zune", "turbo", "turbo_scaled"] = "zune"

    def __post_init__(self) -> None:
        _native.check_decoder("image", self._request())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor of one row."""
        height, width = self._size()
        image = (self.channels, height, width) if self.layout == "chw" else (height, width, self.channels)
        return (*(count for count in (self.images, self.crops) if count is not None), *image)

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
            "horizontal_flip": number("horizontal_flip", self.horizontal_flip),
            "channels": whole("channels", self.channels, 1, 3),
            "layout": self.layout,
            "dtype": self.dtype,
            "mean": None if self.mean is None else [number("mean", value) for value in self.mean],
            "std": None if self.std is None else [number("std", value) for value in self.std],
            "interpolation": self.interpolation,
            "fill": whole("fill", self.fill, 0, 255),
            "apply_orientation": bool(self.apply_orientation),
            "rotation": _range("rotation", self.rotation, 0.0),
            "color_jitter": self._jitter_request(),
            "samples": self.samples,
            "crops": whole_or_none("crops", self.crops, 1, _COUNT_MAX),
            "images": whole_or_none("images", self.images, 1, _COUNT_MAX),
            "matrix": bool(self.matrix),
            "follow": None if self.follow is None else str(self.follow),
            "image_bytes_max": whole_or_none("image_bytes_max", self.image_bytes_max, 1),
            "jpeg": self.jpeg,
            "libraries": [] if self.jpeg == "zune" else libraries("STOKER_LIBJPEG", "PIL", ("pillow.libs",)),
        }

    def _jitter_request(self) -> _native.JitterRequest | None:
        if self.color_jitter is None:
            return None
        if not isinstance(self.color_jitter, ColorJitter):
            raise InvalidRequestError(f"color_jitter is {self.color_jitter!r}; it must be a stoker.ColorJitter")
        return self.color_jitter._request()


def _factors(name: str, value: object) -> tuple[float, float]:
    least, most = _range(name, value, 1.0)
    return (max(least, 0.0), most) if not isinstance(value, (tuple, list)) else (least, most)


def _range(name: str, value: object, middle: float) -> tuple[float, float]:
    """Returns a range as it is, and a number as the range that lies as far around the middle."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise InvalidRequestError(f"{name} is {value!r}; it must be a number, or the least and the greatest value")
        return number(name, value[0]), number(name, value[1])
    around = number(name, value)
    if around < 0:
        raise InvalidRequestError(f"{name} is {value!r}; one number must not be negative")
    return middle - around, middle + around
