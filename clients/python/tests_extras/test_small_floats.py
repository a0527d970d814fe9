"""Floats of 8 and 16 bits with the package ml_dtypes, which the frameworks bring along."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import stoker

NAMES = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.mark.parametrize("name", NAMES)
def test_arrays_have_the_type_that_was_written(tmp_path: Path, name: str) -> None:
    values = np.arange(-6, 6).reshape(4, 3).astype(getattr(ml_dtypes, name))
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", {"x": values})
    query = lake.sql("SELECT x FROM t")
    (batch,) = query.stream(batch_size=4, shuffle=False)
    (arrays,) = query.jax(batch_size=4, shuffle=False)
    assert batch["x"].dtype == arrays["x"].dtype == values.dtype
    np.testing.assert_array_equal(batch["x"].astype(np.float32), values.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(arrays["x"]).astype(np.float32), values.astype(np.float32))
    assert "-6" in query._repr_html_()
