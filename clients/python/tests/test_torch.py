"""The PyTorch loader."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import NUM_ROWS, SHAPE, expected_image

import stoker

torch = pytest.importorskip("torch")

QUERY = "SELECT id, image, label, name FROM samples"


def ids_of(batch: dict[str, object]) -> list[int]:
    return batch["id"][batch.valid].tolist()


def test_batches_are_tensors(lake: stoker.Lake) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = lake.sql(QUERY).torch(batch_size=16, seed=7)
        batches = list(loader)
    assert len(batches) == 7
    batch = batches[0]
    assert list(batch) == ["id", "image", "label", "name"]
    assert (batch["image"].shape, batch["image"].dtype) == ((16, *SHAPE), torch.uint8)
    assert batch["label"].dtype == torch.int32
    assert batch["name"] == [f"row {row}" for row in batch["id"].tolist()]
    assert batch.valid.all()
    assert (batch.num_valid, batch.step, batch.cursor.position, len(batch.row_ids)) == (16, 0, 16, 16)
    assert len(batches[-1]["id"]) == batches[-1].valid.sum() == NUM_ROWS - 6 * 16
    for row, image in zip(batch["id"].tolist(), batch["image"], strict=True):
        np.testing.assert_array_equal(image.numpy(), expected_image(row))
    assert sorted(row for batch in batches for row in ids_of(batch)) == list(range(NUM_ROWS))


def test_tensors_are_views_of_the_arrow_memory(lake: stoker.Lake) -> None:
    from stoker._torch_batch import tensors

    batch = next(iter(lake.sql(QUERY).stream(batch_size=8)))
    values = tensors(batch)
    for name in ("id", "image", "label"):
        assert values[name].data_ptr() == batch[name].__array_interface__["data"][0]
        assert values[name].data_ptr() % values[name].element_size() == 0
    before = values["image"].clone()
    del batch
    values["image"] += 1
    assert torch.equal(values["image"], before + 1)


def test_bfloat16(tmp_path: Path) -> None:
    values = torch.arange(48, dtype=torch.bfloat16).reshape(12, 2, 2)
    lake = stoker.connect(str(tmp_path))
    lake.create_table("t", {"x": values, "y": values[:, 0, 0].contiguous()})
    batch = next(iter(lake.sql("SELECT * FROM t").torch(batch_size=12, shuffle=False)))
    assert batch["x"].dtype == batch["y"].dtype == torch.bfloat16
    assert torch.equal(batch["x"], values)
    assert torch.equal(batch["y"], values[:, 0, 0])
    array = next(iter(lake.sql("SELECT x FROM t").stream(batch_size=12, shuffle=False)))["x"]
    assert array.itemsize == 2


def test_every_tensor_type(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    names = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
    lake.create_table("t", {name: np.arange(16, dtype=name).reshape(4, 2, 2) for name in names})
    batch = next(iter(lake.sql("SELECT * FROM t").torch(batch_size=4, shuffle=False)))
    for name in names:
        assert batch[name].dtype == getattr(torch, name)
        assert batch[name].flatten().to(torch.int64).tolist() == list(range(16))


def test_state_travels_through_a_checkpoint(lake: stoker.Lake, tmp_path: Path) -> None:
    loader = lake.sql(QUERY).torch(batch_size=10, seed=7)
    rows: list[int] = []
    for step, batch in enumerate(loader):
        rows += ids_of(batch)
        if step == 3:
            torch.save({"loader": loader.state_dict()}, tmp_path / "checkpoint")
            break
    resumed = lake.sql(QUERY).torch(global_batch_size=9, seed=7)
    resumed.load_state_dict(torch.load(tmp_path / "checkpoint", weights_only=True)["loader"])
    assert (len(resumed), resumed.remaining) == (4 + (NUM_ROWS - 40 + 8) // 9, (NUM_ROWS - 40 + 8) // 9)
    rows += [row for batch in resumed for row in ids_of(batch)]
    assert sorted(rows) == list(range(NUM_ROWS))
    assert resumed.epoch == 1
    assert resumed.stats().batches == len(range(0, NUM_ROWS - 40, 9))


def test_inside_a_data_loader(lake: stoker.Lake) -> None:
    loader = torch.utils.data.DataLoader(lake.sql(QUERY).torch(batch_size=10), batch_size=None, num_workers=0)
    batches = list(loader)
    assert len(batches) == len(loader) == 11
    assert sorted(row for batch in batches for row in ids_of(batch)) == list(range(NUM_ROWS))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_worker_processes_share_the_rows(lake: stoker.Lake, context: str) -> None:
    query = lake.sql("SELECT id, image FROM samples")
    whole = [sorted(ids_of(batch)) for batch in query.torch(global_batch_size=20, seed=1)]
    rows: dict[int, list[int]] = {}
    for rank in range(2):
        loader = query.torch(global_batch_size=20, seed=1, rank=rank, world_size=2)
        next(iter(loader))  # the parent's runtime and connection exist before the workers do
        loader.load_state_dict(query.torch(global_batch_size=20, seed=1).state_dict())
        workers = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context=context)
        for batch in workers:
            rows.setdefault(batch["image"].shape[0], []).extend(ids_of(batch))
    assert sorted(row for some in rows.values() for row in some) == sorted(row for batch in whole for row in batch)


def test_the_next_epoch_is_opened_before_one_ends(lake: stoker.Lake) -> None:
    loader = lake.sql("SELECT id FROM samples").torch(batch_size=10, seed=3)
    for epoch in range(3):
        expected = lake.sql("SELECT id FROM samples").stream(batch_size=10, seed=3)
        expected.set_epoch(epoch)
        found = [batch["id"].tolist() for batch in loader]
        assert found == [batch["id"].tolist() for batch in expected]
        assert loader.stream._session.open_streams[1] is not None
    loader.close()
    assert loader.stream._session.open_streams[1] is None


def test_loaders_pickle(lake: stoker.Lake) -> None:
    loader = lake.sql(QUERY).torch(batch_size=10)
    first = ids_of(next(iter(loader)))
    copy = pickle.loads(pickle.dumps(loader))
    rows = first + [row for batch in copy for row in ids_of(batch)]
    assert sorted(rows) == list(range(NUM_ROWS))


def test_a_device_is_one_batch_ahead_and_the_state_is_not(lake: stoker.Lake) -> None:
    loader = lake.sql(QUERY).torch(batch_size=10, device="meta")
    for taken, batch in enumerate(loader, start=1):
        assert batch["image"].device.type == "meta"
        place = loader.state_dict()
        assert (place["epoch"], place["position"]) == ((0, taken * 10) if taken < 11 else (1, 0))
    assert taken == 11


@pytest.mark.parametrize("device", ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def test_bytes_reach_every_device_of_this_machine(lake: stoker.Lake, device: str) -> None:
    for batch in lake.sql(QUERY).torch(batch_size=10, device=device):
        for row, image in zip(batch["id"].tolist(), batch["image"].cpu(), strict=True):
            np.testing.assert_array_equal(image.numpy(), expected_image(row))


def test_the_mask_is_a_column_on_request(lake: stoker.Lake) -> None:
    batches = list(lake.sql("SELECT id FROM samples").torch(batch_size=40, last_batch="pad", valid_key="valid"))
    assert list(batches[-1]) == ["id", "valid"]
    assert batches[-1]["valid"].tolist() == batches[-1].valid.tolist() == [True] * 21 + [False] * 19
    with pytest.raises(stoker.InvalidRequestError, match="valid_key is 'id'"):
        lake.sql("SELECT id FROM samples").torch(batch_size=2, valid_key="id")


def test_a_batch_that_a_framework_rebuilt_has_no_mask(lake: stoker.Lake) -> None:
    batch = next(iter(lake.sql(QUERY).torch(batch_size=10)))
    rebuilt = type(batch)({name: values for name, values in batch.items()})
    pairs = type(batch)((name, values) for name, values in batch.items())
    for copy in (rebuilt, pairs):
        assert list(copy) == list(batch)
        for name in ("valid", "cursor", "step", "row_ids", "num_valid", "substituted", "tables", "source"):
            with pytest.raises(stoker.InvalidRequestError, match="rebuilt from its columns"):
                getattr(copy, name)


def test_batches_move_and_travel_with_their_place(lake: stoker.Lake) -> None:
    import copy

    from torch.distributed.utils import _recursive_to

    batch = next(iter(lake.sql(QUERY).torch(batch_size=10)))
    moved = batch.to("meta")
    assert moved["image"].device.type == moved.valid.device.type == "meta"
    assert moved["name"] == batch["name"]
    for other in (moved, pickle.loads(pickle.dumps(batch)), copy.copy(batch), copy.deepcopy(batch)):
        assert (other.cursor, other.step, other.num_valid) == (batch.cursor, batch.step, batch.num_valid)
        assert (other.row_ids == batch.row_ids).all()
        assert (other.tables, other.source.tolist()) == (batch.tables, batch.source.tolist())
    (ddp,) = _recursive_to(batch, torch.device("cpu"), False)  # what DistributedDataParallel(device_ids=…) does
    assert torch.equal(ddp["image"], batch["image"])


def test_transforms_and_collate_functions(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id, image, label FROM samples")
    plain = list(query.torch(batch_size=10, seed=2))

    def floats(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"x": batch["image"].float(), "id": batch["id"]}

    changed = query.torch(batch_size=10, seed=2, transform=floats)
    for one, other in zip(changed, plain, strict=True):
        assert torch.equal(one["x"], other["image"].float())
        assert one.cursor == other.cursor
        assert one["id"][one.valid].tolist() == ids_of(other)

    def collated(rows: list[dict[str, object]]) -> tuple[torch.Tensor, list[int]]:
        return torch.stack([row["image"] for row in rows]), [int(row["label"]) for row in rows]

    for (images, labels), other in zip(query.torch(batch_size=10, seed=2, collate_fn=collated), plain, strict=True):
        assert torch.equal(images, other["image"])
        assert labels == other["label"].tolist()
    for images, _labels in query.torch(batch_size=10, collate_fn=collated, device="meta"):
        assert images.device.type == "meta"
    for name in ("transform", "collate_fn"):
        with pytest.raises(stoker.InvalidRequestError, match=f"{name} is 3"):
            query.torch(batch_size=10, **{name: 3})


def test_integer_columns_are_int64_on_request(lake: stoker.Lake) -> None:
    query = lake.sql(QUERY)
    for batch in query.torch(batch_size=10, int64_columns=["label"]):
        torch.nn.functional.cross_entropy(torch.zeros(len(batch["label"]), 10), batch["label"])
    for bad, said in ((["nope"], "names 'nope'"), (["name"], "no integers"), ("label", "must be a list")):
        with pytest.raises(stoker.InvalidRequestError, match=said):
            query.torch(batch_size=10, int64_columns=bad)


def test_what_trainers_ask_of_a_loader(lake: stoker.Lake) -> None:
    loader = lake.sql(QUERY).torch(global_batch_size=10, rank=1, world_size=3, drop_last=True)
    assert (len(loader.dataset), loader.num_rows, loader.batch_size, loader.drop_last) == (NUM_ROWS, NUM_ROWS, 4, True)
    next(iter(loader))
    assert loader.receipt() == loader.stream.receipt()
    assert not hasattr(loader, "sampler")
    with pytest.raises(AttributeError, match="ignore_data_skip"):
        loader.sampler  # noqa: B018


def test_a_data_loader_that_would_stack_batches_is_refused(lake: stoker.Lake) -> None:
    loader = lake.sql("SELECT id FROM samples").torch(batch_size=10)
    for workers in (0, 1):
        stacked = torch.utils.data.DataLoader(loader, batch_size=8, num_workers=workers)
        with pytest.raises(stoker.InvalidRequestError, match="would stack batches"):
            next(iter(stacked))


def test_worker_processes_are_warned_of_and_counted(lake: stoker.Lake) -> None:
    loader = lake.sql("SELECT id FROM samples").torch(batch_size=10)
    workers = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=2)
    with warnings.catch_warnings():
        # A DataLoader warns when it gets more batches than its length.
        warnings.filterwarnings("error", message="Length of IterableDataset")
        batches = list(workers)
    assert sorted(row for batch in batches for row in ids_of(batch)) == list(range(NUM_ROWS))
    with pytest.warns(UserWarning, match="needs no workers"):
        assert len(batches) == len(workers) == 2 * len(loader)


def test_a_worker_process_has_no_state(lake: stoker.Lake) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    loader = lake.sql("SELECT id FROM samples").torch(batch_size=10)
    with pytest.raises(stoker.InvalidRequestError, match="num_workers=0"):
        list(stateful.StatefulDataLoader(loader, batch_size=None, num_workers=2, snapshot_every_n_steps=1))
    alone = stateful.StatefulDataLoader(loader, batch_size=None, num_workers=0)
    rows = []
    for step, batch in enumerate(alone):
        rows += ids_of(batch)
        if step == 4:
            break
    state = alone.state_dict()
    again = stateful.StatefulDataLoader(
        lake.sql("SELECT id FROM samples").torch(batch_size=10), batch_size=None, num_workers=0
    )
    again.load_state_dict(state)
    rows += [row for batch in again for row in ids_of(batch)]
    assert sorted(rows) == list(range(NUM_ROWS))
