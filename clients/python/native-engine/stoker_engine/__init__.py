"""The engine of Stoker, which opens lakes in this process.

The package `stoker` loads the native module of this one where it is installed; see `stoker._native`. Programs import
`stoker` only.
"""

__version__ = "0.1.0"
