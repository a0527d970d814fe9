"""Checks the licences of all dependencies against the allow list of deny.toml.

It reads the output of `cargo metadata --format-version 1` from standard input; the only argument is the path of
deny.toml. It replaces `cargo deny check licenses bans sources` where cargo-deny is not installed.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

TOKEN = re.compile(r"\(|\)|[A-Za-z0-9.+-]+")


class Expression:
    """An SPDX licence expression, evaluated while it is parsed: OR binds weakest, then AND, then WITH."""

    def __init__(self, text: str, allowed: set[str]) -> None:
        """Splits the expression into tokens; `/` is the older way to write OR."""
        self._tokens = TOKEN.findall(text.replace("/", " OR "))
        self._allowed = allowed

    def holds(self) -> bool:
        """Whether allowed licences alone satisfy the expression."""
        verdict = self._any()
        if self._tokens:
            raise ValueError(f"unexpected {self._tokens[0]!r}")
        return verdict

    def _any(self) -> bool:
        verdict = self._all()
        while self._next_is("OR"):
            verdict |= self._all()
        return verdict

    def _all(self) -> bool:
        verdict = self._one()
        while self._next_is("AND"):
            verdict &= self._one()
        return verdict

    def _one(self) -> bool:
        if self._next_is("("):
            verdict = self._any()
            if not self._next_is(")"):
                raise ValueError("a parenthesis is not closed")
            return verdict
        if not self._tokens:
            raise ValueError("it ends too early")
        licence = self._tokens.pop(0)
        if self._next_is("WITH"):
            licence = f"{licence} WITH {self._tokens.pop(0)}"
        return licence in self._allowed

    def _next_is(self, word: str) -> bool:
        if self._tokens and self._tokens[0] == word:
            self._tokens.pop(0)
            return True
        return False


def problem(package: dict[str, Any], allowed: set[str], banned: set[str]) -> str | None:
    """Returns the reason why a package may not be used, or None."""
    name = f"{package['name']} {package['version']}"
    if package["name"] in banned:
        return f"{name} is banned by deny.toml"
    source = package["source"] or ""
    if source and not source.startswith(("registry+", "sparse+")):
        return f"{name} comes from {source}, which is no registry"
    expression = package["license"]
    if not expression:
        return f"{name} states no licence"
    try:
        holds = Expression(expression, allowed).holds()
    except ValueError as error:
        return f"{name}: licence {expression!r} cannot be read: {error}"
    return None if holds else f"{name}: licence {expression!r} is not allowed"


def main() -> int:
    """Prints every problem; the exit status is 1 if there is one."""
    rules = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    allowed = set(rules["licenses"]["allow"])
    banned = {entry["crate"] for entry in rules["bans"].get("deny", [])}
    metadata = json.load(sys.stdin)
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    packages = [package for package in metadata["packages"] if package["id"] in used]
    problems = [text for package in packages if (text := problem(package, allowed, banned))]
    for text in sorted(problems):
        print(text)
    print(f"{len(packages)} packages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
