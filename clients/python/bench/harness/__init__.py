"""What every measurement of ``bench_peers.py`` shares: the data, the paths, one measurement in a process of its own."""
