"""Reading batches imports no module once iteration has begun, so that no step waits for an import, and never pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import stoker

pytest.importorskip("torch")
pytest.importorskip("pandas")

CLIENT = str(Path(__file__).parent.parent)

CODE = """
import sys
import stoker

lake = stoker.connect(sys.argv[1])
query = lake.sql("SELECT * FROM t")
loader = query.torch(batch_size=4) if sys.argv[2] == "torch" else query.stream(batch_size=4)
iterator = iter(loader)
before = set(sys.modules)
for batch in iterator:
    values = {name: batch[name] for name in batch}
    assert batch.num_valid == len(batch.row_ids) == len(batch.source)
    batch.cursor, batch.step, batch.valid, batch.substituted, batch.tables
loader.state_dict(), loader.receipt()
print(sorted(name for name in set(sys.modules) - before if not name.startswith("encodings")))
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("kind", ["torch", "stream"])
def test_a_batch_imports_nothing(tmp_path: Path, kind: str) -> None:
    columns = {
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(48, dtype=np.uint8).reshape(12, 2, 2)),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(24, dtype=np.float32)), 2),
        "number": pa.array(range(12)),
        "double": pa.array([None, 1.5] * 6),
        "flag": pa.array([True, False] * 6),
        "text": pa.array(["a"] * 12),
        "bytes": pa.array([b"a"] * 12, pa.large_binary()),
        "time": pa.array(range(12), pa.timestamp("ms")),
        "day": pa.array(range(12), pa.date32()),
        "list": pa.array([[1], [2, 3]] * 6),
    }
    stoker.connect(str(tmp_path)).create_table("t", pa.table(columns))
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), kind],
        env={"PYTHONPATH": CLIENT, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "False"], done.stdout
