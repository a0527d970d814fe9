"""Small pictures of images and of tensors, for notebooks; they need Pillow."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

import numpy as np

__all__ = ["file_thumbnail", "is_image_shape", "tensor_thumbnail"]

#: The longest side of a thumbnail in pixels.
THUMBNAIL_PIXELS = 128
#: The side in pixels up to which small images are enlarged.
ENLARGED_PIXELS = 64
#: The numbers of channels that an image may have.
CHANNELS = (1, 3, 4)


def is_image_shape(shape: tuple[int, ...]) -> bool:
    """Returns whether a tensor of a shape is shown as an image: [C, H, W], [H, W, C] or [H, W]; C is 1, 3 or 4."""
    if len(shape) not in (2, 3) or min(shape) < 1:
        return False
    return len(shape) == 2 or shape[0] in CHANNELS or shape[-1] in CHANNELS


def tensor_thumbnail(values: np.ndarray[Any, Any]) -> str | None:
    """Returns a picture of a tensor of numbers; ``None`` if its shape is that of no image, or Pillow is not installed.

    Bytes are pixels. Other numbers are scaled to them: floats from 0 to 1 if all are in this range, all others from the
    least to the greatest value of the tensor. The title tells the range.
    """
    if not is_image_shape(values.shape):
        return None
    try:
        from PIL import Image
    except ImportError:
        return None
    shown = _range(values)
    if shown is None:
        return None
    pixels = np.moveaxis(values, 0, -1) if values.ndim == 3 and values.shape[0] in CHANNELS else values
    # Few pixels of a large tensor are enough for a thumbnail.
    step = max(1, max(pixels.shape[:2]) // (4 * THUMBNAIL_PIXELS))
    pixels = np.ascontiguousarray(pixels[::step, ::step])
    title = f"{values.dtype}{list(values.shape)}"
    if pixels.dtype != np.uint8:
        pixels = _scaled(pixels, *shown)
        title += f", shown from {shown[0]:.6g} to {shown[1]:.6g}"
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[:, :, 0]
    return _tag(Image.fromarray(pixels), title, "PNG")


def file_thumbnail(data: bytes) -> str | None:
    """Returns a picture of the file of an image; ``None`` for what cannot be decoded, or if Pillow is not installed."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        return None
    # Pillow raises exceptions of many classes for damaged files: OSError, SyntaxError, ValueError, struct.error, ….
    try:
        image: Any = Image.open(io.BytesIO(data))
        title = f"{image.format}, {image.width} x {image.height}"
        if image.mode[0] in "IF":
            # More than 8 bits for each pixel.
            return tensor_thumbnail(np.asarray(image))
        if image.mode not in ("L", "RGB", "RGBA"):
            has_alpha = "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBa")
            image = image.convert("RGBA" if has_alpha else "RGB")
        written = "JPEG" if image.format == "JPEG" else "PNG"
        image.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
        return _tag(ImageOps.exif_transpose(image), title, written)
    except Exception:
        return None


def _range(values: np.ndarray[Any, Any]) -> tuple[float, float] | None:
    """Returns the numbers that become black and white; ``None`` if no number is finite."""
    if values.dtype.kind != "f":
        return float(values.min()), float(values.max())
    finite = np.isfinite(values)
    if not finite.any():
        return None
    low = float(values.min(where=finite, initial=np.inf))
    high = float(values.max(where=finite, initial=-np.inf))
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def _scaled(values: np.ndarray[Any, Any], low: float, high: float) -> np.ndarray[Any, Any]:
    """Returns numbers as bytes; what is no number is black."""
    numbers = values.astype(np.float64)
    # Halves, because the difference of two large numbers may be infinite.
    extent = high / 2 - low / 2
    with np.errstate(invalid="ignore"):
        shares = (numbers / 2 - low / 2) / extent if extent else np.zeros_like(numbers)
    return (np.nan_to_num(np.clip(shares, 0, 1), nan=0.0) * 255).round().astype(np.uint8)


def _tag(image: Any, title: str, written: str) -> str:
    """Returns an image tag with the data of the image in it."""
    image.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    buffer = io.BytesIO()
    image.save(buffer, format=written)
    factor = max(1, ENLARGED_PIXELS // max(image.width, image.height, 1))
    size = f'width="{image.width * factor}" height="{image.height * factor}"'
    style = ' style="image-rendering:pixelated"' if factor > 1 else ""
    data = base64.b64encode(buffer.getvalue()).decode()
    title = html.escape(title)
    return f'<img src="data:image/{written.lower()};base64,{data}" {size} title="{title}" alt="{title}"{style}>'
