"""The wheel works in a new environment that knows nothing of this checkout."""

from __future__ import annotations

import os
import subprocess
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

_BYTES_MAX = 95 << 20

_SCRIPT = """
import sys
import numpy as np
import stoker

assert stoker.__file__.startswith(sys.prefix), stoker.__file__
assert "torch" not in sys.modules
lake = stoker.connect("lake")
lake.create_table("t", {"x": np.arange(40, dtype=np.float32).reshape(10, 4), "n": np.arange(10)})
with lake.sql("SELECT x, n FROM t").stream(batch_size=3, seed=1) as stream:
    rows = sorted(n for batch in stream for n in batch["n"][batch.valid].tolist())
print(rows)
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel, which ``cargo xtask test`` builds before the Python tests."""
    path = os.environ.get("STOKER_WHEEL")
    assert path, "STOKER_WHEEL names no wheel: `cargo xtask wheel` builds one, and `cargo xtask test` sets the variable"
    return Path(path)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and its dependencies, in the versions of the environment for tests."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "venv", with_pip=True)
    pinned = [f"{name}=={version(name)}" for name in ("numpy", "pyarrow")]
    pip = ["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    _run(folder, "python", *pip, *pinned, str(wheel), timeout=280)
    return folder


def _run(folder: Path, program: str, *args: str, timeout: int = 60) -> str:
    """Runs a program of the environment, away from the checkout, and returns what it printed."""
    names = ("PATH", "HOME", "SSL_CERT_FILE", "PIP_INDEX_URL", "PIP_CERT", "LANG")
    variables = {name: os.environ[name] for name in names if name in os.environ}
    command = [str(folder / "venv" / "bin" / program), *args]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_is_small_and_serves_every_python(wheel: Path) -> None:
    assert "-abi3-" in wheel.name, wheel.name
    assert wheel.stat().st_size <= _BYTES_MAX
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    native = [name for name in names if name.endswith((".so", ".dylib", ".pyd"))]
    assert len(native) == 1, "the engine is in the wheel once"
    assert not [name for name in names if "test" in name or name.startswith("stoker-old")]


def test_the_package_streams(environment: Path) -> None:
    assert _run(environment, "python", "-c", _SCRIPT).strip() == str(list(range(10)))


def test_the_command_reads_what_the_package_wrote(environment: Path) -> None:
    _run(environment, "python", "-c", _SCRIPT.replace('"t", {', '"u", {').replace("FROM t", "FROM u"))
    counted = _run(environment, "stoker", "sql", "SELECT count(*) AS rows FROM u", "--format", "csv", "--lake", "lake")
    assert counted.split() == ["rows", "10"]
    assert _run(environment, "stoker", "--version").startswith("stoker ")
    assert "Measure rates" not in _run(environment, "stoker", "--help"), "benchmarks are not part of a release"


def test_the_command_says_what_is_wrong_and_fails(environment: Path) -> None:
    command = [str(environment / "venv" / "bin" / "stoker"), "sql", "SELECT * FROM absent", "--lake", "lake"]
    done = subprocess.run(command, cwd=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "absent" in done.stderr
    assert "Traceback" not in done.stderr
