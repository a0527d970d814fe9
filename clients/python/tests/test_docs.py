"""The examples in the documentation run, and every public name is documented."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker

MODULES = [
    "_batch", "_class_balance", "_columns", "_decode", "_lake", "_numpy", "_per_row", "_plan", "_query", "_ragged",
    "_source", "_stream", "_tokenizer",
]  # fmt: skip


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    """The variables that examples use: the module, and a lake with a table of 20 digits."""
    lake = stoker.connect(str(tmp_path))
    images = np.arange(20 * 64, dtype=np.uint8).reshape(20, 1, 8, 8)
    lake.create_table("digits", {"image": images, "label": np.arange(20) % 10, "name": [str(i) for i in range(20)]})
    return {"stoker": stoker, "lake": lake}


def examples() -> list[tuple[str, doctest.DocTest]]:
    modules = [stoker, *(importlib.import_module(f"stoker.{name}") for name in MODULES)]
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for module in modules for test in finder.find(module, module.__name__) if test.examples]
    return [(test.name, test) for test in found]


@pytest.mark.parametrize("test", [pytest.param(test, id=name) for name, test in examples()])
def test_example(test: doctest.DocTest, names: dict[str, Any]) -> None:
    if ".torch" in test.name:
        pytest.importorskip("torch")
    test.globs.update(names)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert not report, "".join(report)


def test_every_public_name_is_documented() -> None:
    for name in stoker.__all__:
        thing = getattr(stoker, name)
        if name == "__version__":
            continue
        assert inspect.getdoc(thing), name
        members = vars(thing) if inspect.isclass(thing) else {}
        for member, value in members.items():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_one_exception_for_each_kind() -> None:
    classes = [
        thing for thing in vars(stoker).values() if inspect.isclass(thing) and issubclass(thing, stoker.StokerError)
    ]
    kinds = {thing.kind for thing in classes if thing is not stoker.StokerError}
    assert len(kinds) == len(classes) - 1 == 12


def test_every_limit_of_a_server_is_in_the_document_on_security() -> None:
    printed = subprocess.run([os.environ["STOKER_BIN"], "serve", "--help"], check=True, capture_output=True, text=True)
    # In the help text, each option begins a line; its meaning and default follow on the next lines.
    parts = [re.split(r"[\s=\[]", part, maxsplit=1) for part in re.split(r"\n +(?=--)", printed.stdout)[1:]]
    defaults = {name: re.search(r"\[default: (.+?)\]", " ".join(text.split())) for name, text in parts}
    is_limit = re.compile(r"-(max|secs|bytes|day|days|rows|at-once|waiting)$")
    limits = {name: found[1] for name, found in defaults.items() if found and is_limit.search(name)}
    document = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    rows = dict(re.findall(r"^\| `(--[a-z-]+)` \| (.+) \|$", document, flags=re.MULTILINE))
    assert rows == {name: as_written(default) for name, default in limits.items()}


def as_written(default: str) -> str:
    """Returns a default value as the documents write it: large numbers of bytes in GiB or MiB."""
    default = " ".join(default.split())
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if default.isdecimal() and int(default) % (1 << shift) == 0 and int(default) > 0:
            return f"{int(default) >> shift} {unit}"
    return default
