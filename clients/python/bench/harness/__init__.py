"""The parts of ``bench_peers.py`` that all systems share: the data, the paths, and the process of a measurement."""
