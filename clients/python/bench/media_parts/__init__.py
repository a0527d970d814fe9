"""The paths of ``bench_media.py``: one module for each sort of media."""
