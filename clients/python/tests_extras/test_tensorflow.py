"""Streams as datasets of TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import NUM_ROWS, tokens

import stoker

QUERY = "SELECT id, image, emb, flag, tokens, name, at FROM t"

#: A tokenizer of digits and letters.
WORDS = """{"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "1": 1, "2": 2}},
    "pre_tokenizer": {"type": "Digits", "individual_digits": true}, "added_tokens": [], "version": "1.0"}"""


def test_the_dataset_has_the_values_and_the_spec_of_the_stream(lake: stoker.Lake) -> None:
    dataset = lake.sql(QUERY).tensorflow(batch_size=8, seed=3, valid_key="valid")
    assert isinstance(dataset, tf.data.Dataset)
    assert dataset.element_spec == {
        "id": tf.TensorSpec((None,), tf.int32),
        "image": tf.TensorSpec((None, 3, 4, 4), tf.uint8),
        "emb": tf.TensorSpec((None, 8), tf.float32),
        "flag": tf.TensorSpec((None,), tf.bool),
        "tokens": tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1, row_splits_dtype=tf.int64),
        "name": tf.TensorSpec((None,), tf.string),
        "at": tf.TensorSpec((None,), tf.int64),
        "valid": tf.TensorSpec((None,), tf.bool),
    }
    stream = lake.sql(QUERY).stream(batch_size=8, seed=3)
    count = 0
    for batch, expected in zip(dataset, stream, strict=True):
        for name in ("id", "image", "emb", "flag"):
            np.testing.assert_array_equal(batch[name].numpy(), expected[name])
        assert batch["tokens"].to_list() == [tokens(row) for row in expected["id"].tolist()]
        assert [name.decode() for name in batch["name"].numpy()] == expected["name"].tolist()
        np.testing.assert_array_equal(batch["at"].numpy(), expected["at"].view(np.int64))
        np.testing.assert_array_equal(batch["valid"].numpy(), expected.valid)
        count += len(batch["id"])
    assert count == NUM_ROWS
    assert dataset.stoker.receipt() == stream.receipt()


def test_batches_of_one_size_are_static(lake: stoker.Lake) -> None:
    dataset = lake.sql("SELECT id, tokens FROM t").tensorflow(
        batch_size=8, last_batch="drop", ragged=stoker.Pad(length=7, mask="mask", lengths="lengths")
    )
    assert dataset.element_spec == {
        "id": tf.TensorSpec((8,), tf.int32),
        "tokens": tf.TensorSpec((8, 7), tf.int32),
        "lengths": tf.TensorSpec((8,), tf.int64),
        "mask": tf.TensorSpec((8, 7), tf.bool),
    }
    batches = list(dataset)
    assert len(batches) == NUM_ROWS // 8
    for batch in batches:
        for row, padded, mask in zip(batch["id"].numpy(), batch["tokens"].numpy(), batch["mask"].numpy(), strict=True):
            assert padded[mask].tolist() == tokens(int(row))


def test_each_iteration_is_an_epoch(lake: stoker.Lake) -> None:
    dataset = lake.sql("SELECT id FROM t").tensorflow(batch_size=8, seed=3)
    epochs = [[row for batch in dataset for row in batch["id"].numpy().tolist()] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(NUM_ROWS))
    assert epochs[0] != epochs[1]
    assert dataset.stoker.epoch == 2


def test_a_loop_that_breaks_goes_on_there(lake: stoker.Lake) -> None:
    dataset = lake.sql("SELECT id FROM t").tensorflow(batch_size=8, seed=3)
    rows: list[int] = []
    for batch in dataset:
        rows += batch["id"].numpy().tolist()
        if len(rows) == 24:
            break
    state = dataset.stoker.state_dict()
    again = lake.sql("SELECT id FROM t").stream(batch_size=8, seed=3)
    again.load_state_dict(state)
    for batch in again.tensorflow():
        rows += batch["id"].numpy().tolist()
    assert sorted(rows) == list(range(NUM_ROWS))


def test_keras_trains_on_it(lake: stoker.Lake) -> None:
    dataset = lake.sql("SELECT emb, id FROM t").tensorflow(batch_size=10, last_batch="drop")
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    pairs = dataset.map(lambda batch: (batch["emb"] / 100.0, tf.cast(batch["id"], tf.float32) / 100.0))
    history = model.fit(pairs, epochs=3, verbose=0)
    assert len(history.history["loss"]) == 3
    assert dataset.stoker.epoch == 3


def test_an_error_of_the_stream_reaches_the_loop(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id, tokens FROM t")
    dataset = query.tensorflow(batch_size=8, ragged=stoker.Pad(length=2))
    with pytest.raises(tf.errors.OpError, match=r"column tokens, row \d of the batch: expected at most 2 values"):
        list(dataset)


def test_options_that_do_not_fit_are_refused(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id, tokens FROM t")
    with pytest.raises(stoker.InvalidRequestError, match="TensorFlow has 'jagged' for lists of one level, and 'pad'"):
        query.tensorflow(batch_size=8, ragged="list")
    with pytest.raises(stoker.InvalidRequestError, match="valid_key is 'id'"):
        query.tensorflow(batch_size=8, valid_key="id")


def test_a_transform_of_rows_gives_the_spec(lake: stoker.Lake) -> None:
    def transform(row: dict, rng: np.random.Generator) -> dict:
        return {"x": row["emb"] * 2, "length": len(row["tokens"]), "noise": rng.random(), "id": row["id"]}

    outputs = {"x": (8, "float32"), "length": ((), "int64"), "noise": ((), "float64"), "id": ((), "int32")}
    options = {"batch_size": 8, "seed": 3, "transform": stoker.PerRow(transform, seeded=True, outputs=outputs)}
    dataset = lake.sql(QUERY).tensorflow(**options)
    assert dataset.element_spec == {
        "x": tf.TensorSpec((None, 8), tf.float32),
        "length": tf.TensorSpec((None,), tf.int64),
        "noise": tf.TensorSpec((None,), tf.float64),
        "id": tf.TensorSpec((None,), tf.int32),
    }
    count = 0
    for batch, expected in zip(dataset, lake.sql(QUERY).numpy(**options), strict=True):
        for name in outputs:
            np.testing.assert_array_equal(batch[name].numpy(), expected[name])
        assert batch["length"].numpy().tolist() == [len(tokens(row)) for row in batch["id"].numpy().tolist()]
        count += len(batch["id"])
    assert count == NUM_ROWS
    with pytest.raises(stoker.InvalidRequestError, match=r"a stoker\.PerRow with outputs"):
        lake.sql(QUERY).tensorflow(batch_size=8, transform=stoker.PerRow(transform, seeded=True))


def test_a_row_that_a_transform_refuses_is_named(lake: stoker.Lake) -> None:
    def transform(row: dict) -> dict:
        if row["id"] == 11:
            raise stoker.BadRow("it is eleven")
        return {"id": row["id"]}

    per_row = stoker.PerRow(transform, outputs={"id": ((), "int32")})
    with pytest.raises(Exception, match=r"refused row id \d+ of t version \d+ .*it is eleven"):
        list(lake.sql("SELECT id FROM t").tensorflow(batch_size=8, transform=per_row))


def test_token_ids_are_ragged_or_of_one_length(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id, name FROM t")
    dataset = query.tensorflow(batch_size=8, decode={"name": stoker.Tokenizer(WORDS)})
    expected = query.numpy(batch_size=8, decode={"name": stoker.Tokenizer(WORDS)})
    for batch, other in zip(dataset, expected, strict=True):
        assert batch["name"].to_list() == [row.tolist() for row in other["name"]]
    dataset = query.tensorflow(batch_size=8, decode={"name": stoker.Tokenizer(WORDS, length=3, pad=0)})
    assert dataset.element_spec["name"] == tf.TensorSpec((None, 3), tf.int32)
    assert dataset.element_spec["name_mask"] == tf.TensorSpec((None, 3), tf.bool)
    assert sum(len(batch["name_length"]) for batch in dataset) == NUM_ROWS


def test_tensors_share_the_memory_of_batches_and_keep_it(tmp_path: Path) -> None:
    rows = np.arange(24, dtype=np.float32)[:, None] + np.arange(8_192, dtype=np.float32) / 8_192
    lake = stoker.connect(str(tmp_path))
    lake.create_table("wide", {"id": np.arange(24), "x": rows})
    query = lake.sql("SELECT id, x FROM wide")
    batches = list(query.tensorflow(batch_size=8, seed=1))
    list(query.tensorflow(batch_size=8, seed=2))  # takes memory that the batches before have given back
    for batch in batches:
        np.testing.assert_array_equal(batch["x"].numpy(), rows[batch["id"].numpy()])
        doubled = batch["x"] * 2.0
        np.testing.assert_array_equal(batch["x"].numpy() * 2, doubled.numpy())
