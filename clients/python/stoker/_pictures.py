"""Images of Pillow as files: the file itself where its pixels were not touched, and a PNG file otherwise."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["PNG_MODES", "file_of", "is_picture"]

#: The modes of Pillow that PNG files hold without loss.
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16")
#: The formats of files that tables of images take.
_FORMATS = ("JPEG", "PNG", "WEBP")


def is_picture(value: object) -> bool:
    """Whether a value is an image of Pillow, which is not imported for this."""
    return any(base.__module__ == "PIL.Image" and base.__name__ == "Image" for base in type(value).__mro__)


def file_of(image: Any) -> bytes:
    """Returns the file of an image.

    An image that was opened from a JPEG, PNG or WebP file and not loaded yet has the pixels of the file, and so the
    bytes of the file are returned. Any other image becomes a PNG file, with the same pixels.

    Raises:
        ValueError: The image has a mode that PNG files do not hold.
    """
    unread = _unread_file(image)
    if unread is not None:
        return unread
    if image.mode not in PNG_MODES:
        raise ValueError(f"an image of the mode {image.mode}, which PNG does not hold: convert it, to RGB for example")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _unread_file(image: Any) -> bytes | None:
    """Returns the bytes of the file of an image whose pixels were not read yet."""
    file = getattr(image, "fp", None)
    # The pixels of a file are read by its tiles, of which none is left after that.
    if getattr(image, "format", None) not in _FORMATS or file is None or not getattr(image, "tile", None):
        return None
    try:
        place = file.tell()
        file.seek(0)
        found = file.read()
        file.seek(place)
    except (OSError, ValueError):
        return None
    return bytes(found)
