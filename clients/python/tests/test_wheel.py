"""The wheels work in new environments that know nothing of this checkout: both together, and the client's alone."""

from __future__ import annotations

import os
import subprocess
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import NUM_ROWS, Server

_ENGINE_BYTES_MAX = 95 << 20
_CLIENT_BYTES_MAX = 15 << 20

_NEEDED = (
    "needs the engine, which this installation of stoker does not have: add it with `pip install 'stoker[engine]'`"
)

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

_CLIENT_SCRIPT = """
import pickle, sys
import numpy as np
import stoker

assert stoker.__file__.startswith(sys.prefix), stoker.__file__
lake = stoker.connect(sys.argv[1])
assert "samples" in lake.tables()
counted = lake.sql("SELECT count(*) AS rows, sum(id) AS total FROM samples").to_arrow()
print(counted.to_pylist())
loader = pickle.loads(pickle.dumps(lake.sql("SELECT id, image FROM samples").stream(batch_size=16, seed=7).numpy()))
ids = []
for batch in loader:
    for row, image in zip(batch["id"][batch.valid], batch["image"]):
        np.testing.assert_array_equal(image.ravel(), (row * 7 + np.arange(image.size)) % 251)
        ids.append(int(row))
print(sorted(ids) == list(range(len(ids))), len(ids), lake.verify([loader.receipt()]) != [])
"""

_REFUSED_SCRIPT = """
import sys
import stoker

server = stoker.connect(sys.argv[1])
attempts = [
    lambda: stoker.connect("lake"),
    lambda: server.ingest("photos", "t"),
    lambda: server.table("samples").quarantine([0]),
]
for attempt in attempts:
    try:
        attempt()
    except stoker.InvalidRequestError as refused:
        print(refused)
"""

_MODULES_SCRIPT = """
import re
import stoker
from stoker import _native

assert _native.Connection.__module__ == "stoker._native" and _native.__version__ == stoker.__version__
maps = open("/proc/self/maps").read()
print(sorted(set(re.findall(r"/(stoker\\w*/_\\w+\\.abi3\\.so)", maps))))
"""


def _wheel(variable: str) -> Path:
    path = os.environ.get(variable)
    assert path, f"{variable} names no wheel: `cargo xtask wheel` builds them, and `cargo xtask test` sets the variable"
    return Path(path)


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel of the package ``stoker``, which ``cargo xtask test`` builds before the Python tests."""
    return _wheel("STOKER_WHEEL")


@pytest.fixture(scope="module")
def engine_wheel() -> Path:
    """The wheel of the package ``stoker-engine``, which ``cargo xtask test`` builds, too."""
    return _wheel("STOKER_ENGINE_WHEEL")


@pytest.fixture(scope="module")
def environment(wheel: Path, engine_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with both wheels and their dependencies."""
    return _installed(tmp_path_factory.mktemp("clean"), engine_wheel, wheel)


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel of the package ``stoker`` alone, and its dependencies."""
    return _installed(tmp_path_factory.mktemp("client"), wheel)


def _installed(folder: Path, *wheels: Path) -> Path:
    """Makes an environment with wheels; dependencies have the versions of the environment for tests."""
    venv.create(folder / "venv", with_pip=True)
    pinned = [f"{name}=={version(name)}" for name in ("numpy", "pyarrow")]
    pip = ["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    _run(folder, "python", *pip, *pinned, *map(str, wheels), timeout=280)
    return folder


def _done(folder: Path, program: str, *args: str, timeout: int = 60, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of the environment, away from the checkout."""
    names = ("PATH", "HOME", "SSL_CERT_FILE", "PIP_INDEX_URL", "PIP_CERT", "LANG")
    variables = {name: os.environ[name] for name in names if name in os.environ} | more
    command = [str(folder / "venv" / "bin" / program), *args]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=timeout)


def _run(folder: Path, program: str, *args: str, timeout: int = 60) -> str:
    """Runs a program that succeeds, and returns what it printed."""
    done = _done(folder, program, *args, timeout=timeout)
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    ("variable", "native", "bytes_max"),
    [
        ("STOKER_WHEEL", "stoker/_client.abi3.so", _CLIENT_BYTES_MAX),
        ("STOKER_ENGINE_WHEEL", "stoker_engine/_native.abi3.so", _ENGINE_BYTES_MAX),
    ],
)
def test_the_wheels_are_small_and_serve_every_python(variable: str, native: str, bytes_max: int) -> None:
    wheel = _wheel(variable)
    assert "-abi3-" in wheel.name, wheel.name
    assert wheel.stat().st_size <= bytes_max
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert [name for name in names if name.endswith((".so", ".dylib", ".pyd"))] == [native], "one native module"
    assert native.split("/")[0] + "/__init__.py" in names
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
    done = _done(environment, "stoker", "sql", "SELECT * FROM absent", "--lake", "lake")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "absent" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_client_reads_through_a_server(environment: Path, client: Path, server: Server) -> None:
    total = NUM_ROWS * (NUM_ROWS - 1) // 2
    expected = [str([{"rows": NUM_ROWS, "total": total}]), f"True {NUM_ROWS} True"]
    for folder in (client, environment):
        assert _run(folder, "python", "-c", _CLIENT_SCRIPT, server.url).splitlines() == expected


def test_a_client_says_that_it_has_no_engine(client: Path, server: Server) -> None:
    refused = _run(client, "python", "-c", _REFUSED_SCRIPT, server.url).splitlines()
    attempted = ["opening a lake in this process", "ingesting files", "excluding rows"]
    assert len(refused) == len(attempted), refused
    for message, words in zip(refused, attempted, strict=True):
        assert words in message
        assert _NEEDED in message
    assert '"lake" names a lake' in refused[0]


def test_the_command_of_a_client_says_that_it_has_no_engine(client: Path) -> None:
    done = _done(client, "stoker", "sql", "SELECT 1", "--lake", "lake")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [f"error: the command `stoker` {_NEEDED}"]


def test_a_client_has_no_file_of_the_engine(client: Path) -> None:
    assert not [path for path in client.rglob("*") if "stoker_engine" in path.name]
    assert [path.name for path in client.rglob("stoker/*.so")] == ["_client.abi3.so"]


def test_a_process_has_one_native_module(environment: Path, client: Path) -> None:
    for folder, module in ((environment, "stoker_engine/_native.abi3.so"), (client, "stoker/_client.abi3.so")):
        assert _run(folder, "python", "-c", _MODULES_SCRIPT).strip() == str([module])


def test_an_engine_of_another_version_is_refused(client: Path, tmp_path: Path) -> None:
    (tmp_path / "stoker_engine").mkdir()
    (tmp_path / "stoker_engine" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    done = _done(client, "python", "-c", "import stoker", PYTHONPATH=str(tmp_path))
    own = version_of(client)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: stoker {own} and stoker-engine 0.0.1 are installed"), last
    assert f"pip install 'stoker[engine]=={own}'" in last


def test_an_engine_that_cannot_be_loaded_is_an_error(client: Path, tmp_path: Path) -> None:
    (tmp_path / "stoker_engine").mkdir()
    (tmp_path / "stoker_engine" / "__init__.py").write_text(f'__version__ = "{version_of(client)}"\n')
    done = _done(client, "python", "-c", "import stoker", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "stoker_engine._native" in done.stderr.splitlines()[-1]


def version_of(environment: Path) -> str:
    """Returns the version of the package ``stoker`` in an environment."""
    return _run(environment, "python", "-c", "import stoker; print(stoker.__version__)").strip()
