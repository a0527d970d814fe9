"""Tokenizers, which make token ids of texts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from stoker import _native
from stoker._errors import InvalidRequestError
from stoker._numbers import whole, whole_or_none

__all__ = ["Tokenizer"]

#: The maximum of numbers that the native module checks itself.
_ANY = 2**31 - 1

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Tokenizer:
    """Makes token ids of a column of text; see ``decode`` of :meth:`Query.stream`.

    The ids are those of the package ``tokenizers``, for the same ``tokenizer.json``. What the file says about
    truncation and padding does not count, except for the token that fills rows.

    Without ``length``, rows have different lengths, which ``ragged`` of the loaders hands out. With it, batches have
    three arrays: the ids of shape ``(rows, length)``; under ``<column>_mask``, which ids are tokens and which ones
    filling, as bools of that shape; and under ``<column>_length`` the numbers of tokens.

    Attributes:
        file: The path of a ``tokenizer.json`` or of a folder with one, its JSON text, or a tokenizer of the packages
            ``tokenizers`` or ``transformers`` (a fast one).
        length: The number of tokens of each row: longer rows are cut, shorter ones are filled.
        tokens_max: Without ``length``: the most tokens of a row.
        truncate: Whether longer rows are cut, so that their special tokens stay. Otherwise they are bad rows.
        truncate_side: The side at which rows are cut.
        pad: The token that fills rows: its id or its text. Default: the one that the file names as padding, or
            ``[PAD]``, ``<pad>`` or ``<|pad|>``.
        pad_side: The side at which rows are filled.
        add_special_tokens: Whether the special tokens are added that the file adds to a text.
        dtype: The type of the ids.
        text_bytes_max: The most bytes of a text; a longer one is a bad row. Tokenizing takes about 100 bytes of memory
            for each token. Default: 16 MiB.
        digest: The SHA-256 of the file's text. The ranks of a job must have one tokenizer with one set of options.

    Raises:
        InvalidRequestError: A file that holds no tokenizer, or more than 256 MiB; options that do not fit it.
        NotFoundError: The file does not exist.

    Example:
        >>> words = '''{"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "cat": 2}},
        ...     "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [], "version": "1.0"}'''
        >>> _ = lake.create_table("captions", {"caption": ["a cat", "a dog sat"]}, mode="overwrite")
        >>> decode = {"caption": stoker.Tokenizer(words, length=4, pad=0)}
        >>> query = lake.sql("SELECT caption FROM captions")
        >>> batch = next(iter(query.numpy(batch_size=2, shuffle=False, decode=decode)))
        >>> batch["caption"].tolist(), batch["caption_length"].tolist()
        ([[1, 2, 0, 0], [1, 0, 0, 0]], [2, 3])
    """

    file: Any = field(repr=False, compare=False)
    length: int | None = None
    tokens_max: int | None = None
    truncate: bool = True
    truncate_side: Side = "right"
    pad: int | str | None = None
    pad_side: Side = "right"
    add_special_tokens: bool = True
    dtype: Literal["int32", "int64"] = "int32"
    text_bytes_max: int | None = None
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        name, text = _text_of(self.file)
        self._make(name, text)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens, added ones included: how many rows an embedding needs."""
        return self._native.vocabulary_size

    @property
    def pad_id(self) -> int | None:
        """The id that fills rows, if they have a length."""
        return self._native.pad_id

    @property
    def _native(self) -> _native.TextTokenizer:
        found: _native.TextTokenizer = self.__dict__["native"]
        return found

    def _make(self, name: str, text: str) -> None:
        pad = self.pad if isinstance(self.pad, str) else whole_or_none("pad", self.pad, 0, 2**32 - 1)
        made = _native.TextTokenizer(
            name,
            text,
            {
                "length": whole_or_none("length", self.length, 0, _ANY),
                "tokens_max": whole_or_none("tokens_max", self.tokens_max, 0, _ANY),
                "truncate": bool(self.truncate),
                "truncate_side": str(self.truncate_side),
                "pad": pad,
                "pad_side": str(self.pad_side),
                "add_special_tokens": bool(self.add_special_tokens),
                "dtype": str(self.dtype),
                "bytes_max": None if self.text_bytes_max is None else whole("text_bytes_max", self.text_bytes_max, 1),
            },
        )
        self.__dict__.update(native=made, name=name, digest=made.digest)

    def __getstate__(self) -> dict[str, Any]:
        options = {option.name: getattr(self, option.name) for option in fields(self) if option.init}
        # The other process may not have the file.
        return {**options, "file": self._native.json, "name": self.__dict__["name"]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        name = state.pop("name")
        self.__dict__.update(state)
        self._make(name, self.file)


def _text_of(file: Any) -> tuple[str, str]:
    """Returns what messages call a tokenizer, and its JSON text."""
    if isinstance(file, str) and file.lstrip().startswith("{"):
        return "given as text", file
    if isinstance(file, (str, os.PathLike)):
        path = os.fspath(file)
        return str(path), _native.read_tokenizer(os.fsdecode(path))
    inner = getattr(file, "backend_tokenizer", file)
    if callable(getattr(inner, "to_str", None)):
        return f"of {type(file).__name__}", inner.to_str()
    raise InvalidRequestError(
        f"file is a {type(file).__name__}; it must be the path of a tokenizer.json, its text, or a tokenizer of the "
        "package tokenizers"
    )
