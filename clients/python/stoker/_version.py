"""The version of this package, which `stoker_engine` must have, too."""

__version__ = "0.1.0"
