"""The parts of ``bench_python.py``."""
