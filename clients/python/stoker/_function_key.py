"""Texts by which a function is known again in another process."""

from __future__ import annotations

import functools
import hashlib
import re
from types import CodeType
from typing import Any

__all__ = ["function_key"]

#: Addresses in memory, which differ from process to process.
_ADDRESSES = re.compile(r"0x[0-9a-fA-F]+")


def function_key(function: Any) -> str:
    """Returns the name of a function, and a digest of its code: another one after a change of the code.

    What the function refers to, such as the weights of a model, does not count. Of other objects, the class and what
    their ``repr`` says count.

    Example:
        >>> from stoker._function_key import function_key
        >>> function_key(lambda batch: batch["a"] + 1) == function_key(lambda batch: batch["a"] + 2)
        False
    """
    if isinstance(function, functools.partial):
        given = [*map(_shown, function.args), *(f"{name}={_shown(value)}" for name, value in function.keywords.items())]
        return f"{function_key(function.func)}({', '.join(given)})"
    function = getattr(function, "__func__", function)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    codes = [_code(function)]
    if codes == [None]:
        # An object that is called, such as a model.
        own = type(function)
        name = f"{own.__module__}.{own.__qualname__}"
        codes = [_code(getattr(own, method, None)) for method in ("__call__", "forward")]
        codes = [code for code in codes if code is not None]
        name += "" if codes else f" {_shown(function)}"
    digest = hashlib.sha256()
    for code in codes:
        if code is not None:
            _update(digest, code)
    return f"{name} {digest.hexdigest()[:16]}"


def _code(function: Any) -> CodeType | None:
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _update(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _update(digest, constant)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(repr(constant).encode())


def _shown(value: Any) -> str:
    return _ADDRESSES.sub("", repr(value))
