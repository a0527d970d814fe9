"""The peak memory of a rank with default options is that of docs/guarantees.md, whatever its consumer does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import stoker_bin

import stoker

BENCH = Path(__file__).parents[1] / "bench"
sys.path.insert(0, str(BENCH))

from harness.store import serve  # noqa: E402

pytestmark = pytest.mark.alone

SHAPE = (3, 224, 224)
IMAGE_BYTES = int(np.prod(SHAPE))
#: The numbers of rows of the tables: 154 MB, which a delay line would hold, 308 and 925 MB.
SIZES = (1_024, 2_048, 6_144)
MB = 1_000_000


def images(num_rows: int) -> pa.RecordBatchReader:
    """Returns the rows of a table, in batches of 128 rows."""
    kind = pa.fixed_shape_tensor(pa.uint8(), SHAPE)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("image", kind)])

    def batches() -> Iterator[pa.RecordBatch]:
        pixels = pa.array(np.resize(np.arange(251, dtype=np.uint8), 128 * IMAGE_BYTES))
        storage = pa.FixedSizeListArray.from_arrays(pixels, IMAGE_BYTES)
        for start in range(0, num_rows, 128):
            tensors = pa.ExtensionArray.from_storage(kind, storage)
            yield pa.record_batch([np.arange(start, start + 128), tensors], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3-compatible store that waits 20 ms before each response, with a lake in a bucket."""
    folder = tmp_path_factory.mktemp("store")
    lake = stoker.connect(str(folder / "bucket" / "lake"))
    for num_rows in SIZES:
        lake.create_table(f"rows_{num_rows}", images(num_rows))
    with serve(stoker_bin(), folder, 20) as running:
        yield running


@pytest.mark.parametrize("consumer", ["fast", "slow", "stops"])
@pytest.mark.parametrize("num_rows", SIZES)
@pytest.mark.parametrize(
    ("options", "bar"),
    [({"shuffle": False}, 256 * MB), ({"shuffle": "block"}, 512 * MB)],
    ids=["in order", "shuffled"],
)
def test_a_rank_stays_below_its_bar(
    endpoint: str, options: dict[str, object], bar: int, num_rows: int, consumer: str
) -> None:
    request = {
        "lake": "s3://bucket/lake",
        "storage_options": {
            "aws_endpoint": endpoint,
            "aws_region": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test-secret",
            "allow_http": "true",
        },
        "table": f"rows_{num_rows}",
        "options": options,
        "consumer": consumer,
    }
    command = [sys.executable, str(Path(__file__).with_name("peak_child.py")), json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["num_rows"] == (3 * 256 if consumer == "stops" else num_rows)
    assert 2 * 256 * IMAGE_BYTES < found["peak_bytes"] <= bar, f"{found['peak_bytes'] / MB:.0f} MB"
