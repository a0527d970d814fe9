"""The native module of this process: all classes and functions that are written in Rust.

There are two. That of the package `stoker-engine` has the engine, so that it opens lakes in this process; `_client`,
which this package brings along, has none and reads through servers. Everything else is the same in both.

A process loads one of them, here and nowhere else. Each has its own threads, limits of memory and caches, its own hooks
around forks and at the exit, and its own classes: with both of them in one process, every limit would hold twice, and
the objects of one module would be refused by the other.
"""

from stoker._version import __version__

try:
    import stoker_engine
except ModuleNotFoundError as missing:
    if missing.name != "stoker_engine":
        raise
    from stoker._client import *
else:
    # A folder of this name without the package has no version.
    _engine_version = getattr(stoker_engine, "__version__", "without a version")
    if _engine_version != __version__:
        raise ImportError(
            f"stoker {__version__} and stoker-engine {_engine_version} are installed, and only equal "
            f"versions work together: install them together, as in `pip install 'stoker[engine]=={__version__}'`"
        )
    from stoker_engine._native import *
