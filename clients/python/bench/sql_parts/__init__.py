"""The parts of ``bench_sql.py``: SQL and search beside other engines."""
