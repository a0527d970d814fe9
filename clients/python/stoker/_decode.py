"""The decoders of the columns of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from stoker import _native
from stoker._decoder import Decoder
from stoker._errors import InvalidRequestError
from stoker._image import ImageTransform
from stoker._media import AudioClip, VideoClip
from stoker._numbers import whole_or_none
from stoker._tokenizer import Tokenizer

__all__ = ["ColumnDecoder", "decode_request", "tokenizers_of"]

#: What decodes the values of a column; ``False`` keeps compressed tensors as they are stored.
ColumnDecoder: TypeAlias = ImageTransform | AudioClip | VideoClip | Tokenizer | Decoder | Literal[False]


def decode_request(decode: Mapping[str, ColumnDecoder] | None, num_threads: int | None) -> _native.DecodeRequest | None:
    """Returns the columns to decode in the form of the native module, or ``None`` if nothing is asked for.

    Compressed tensors are decoded in any case, unless ``False`` keeps a column as it is stored.

    Raises:
        InvalidRequestError: A value that is no decoder, or a number of threads out of range.
    """
    threads = whole_or_none("decode_threads", num_threads, 1, 1024)
    if not decode and threads is None:
        return None
    if decode and not isinstance(decode, Mapping):
        raise InvalidRequestError(f"decode is a {type(decode).__name__}; it must be a dict of decoders")
    asked = decode or {}
    return {
        "columns": [_column(name, decoder) for name, decoder in asked.items() if decoder is not False],
        "num_threads": threads or 0,
        "as_stored": [name for name, decoder in asked.items() if decoder is False],
    }


def tokenizers_of(request: _native.DecodeRequest | None) -> dict[str, str]:
    """Returns the tokenizers of columns, each as its digest and its options, for comparing those of ranks."""
    columns = [] if request is None else request["columns"]
    return {name: made.identity for name, _, made in columns if isinstance(made, _native.TextTokenizer)}


def _column(name: str, decoder: object) -> tuple[str, str, object]:
    if isinstance(decoder, ImageTransform):
        return name, "image", decoder._request()
    if isinstance(decoder, AudioClip):
        return name, "audio", decoder._request()
    if isinstance(decoder, VideoClip):
        return name, "video", decoder._request()
    if isinstance(decoder, Tokenizer):
        return name, "text", decoder._native
    if isinstance(decoder, Decoder):
        return name, "function", decoder._request()
    hint = "; wrap a function as stoker.Decoder(function, shape=…, dtype=…)" if callable(decoder) else ""
    raise InvalidRequestError(
        f"decode[{name!r}] is {decoder!r}; it must be a decoder such as stoker.ImageTransform{hint}"
    )
