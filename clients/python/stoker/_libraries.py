"""Finds native libraries that other packages bring."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["libraries"]


def libraries(variable: str, package: str, folders: Sequence[str]) -> list[str]:
    """Returns the files and folders in which a library may be.

    Args:
        variable: The environment variable that names files and folders.
        package: The package that brings the library; it is not imported.
        folders: The names of the folders beside the package that have its libraries.

    Returns:
        What the variable names, then the folders that exist.
    """
    named = [place for place in os.environ.get(variable, "").split(os.pathsep) if place]
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return named
    inside = Path(found.origin).parent
    places = [inside / ".dylibs", *(inside.parent / folder for folder in folders)]
    return named + [str(place) for place in places if place.is_dir()]
