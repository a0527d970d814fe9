"""Measures whether the stream of one rank keeps a CUDA device busy: ResNet-50, 224 by 224 pixels.

    python clients/python/bench/bench_gpu.py --dir /data/bench

The Python that runs it must have ``stoker`` with its engine, ``torch`` and ``torchvision``; both are used as they come.
All rows are made here: JPEG files of about 110 KB (500 by 375 pixels, smoothed noise) and tensors ``uint8[3,224,224]``.

Each path runs in a process of its own, in this order:

1. *The step*: forward, backward and SGD of ResNet-50 (bfloat16 autocast, channels last), on one batch that is on the
   device already, ``--steps`` times. This is the ceiling: the device never waits.
2. *The loop*: the same step over the batches of the path, from the first batch on, ``--steps`` times, over as many
   epochs as it takes.

``busy`` is the time of the step in 1 over its time in 2, waiting included: the share of the loop in which the device
worked on the model, if the step itself takes no longer in the loop. ``first`` is the time from the call for the loader
to its first batch on the device. ``copies`` are the bytes of tensors per second that reach the device when no model
runs, for the same path.

Paths: ``stoker tensors`` and ``stoker jpeg`` with ``device="cuda"`` (copies through pinned memory, one batch ahead),
each also without it, with ``batch.to("cuda")`` in the loop; both through ``stoker serve`` over a Unix socket on the
same machine; and ``torchvision``: ``ImageFolder`` with a ``DataLoader`` of as many workers as there are processors,
with pinned memory, which decodes and transforms the same JPEG files.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HEIGHT, _WIDTH = 375, 500
_NUM_CLASSES = 100
#: The program of the command `stoker`, which need not be on the `PATH`.
_COMMAND = "import sys; from stoker._command import main; sys.exit(main())"
_PATHS = (
    "stoker tensors",
    "stoker tensors, copied in the loop",
    "stoker jpeg",
    "stoker jpeg, copied in the loop",
    "stoker jpeg, served",
    "stoker tensors, served",
    "torchvision",
)


def main() -> int:
    """Makes the rows, measures each path in a process of its own, and prints one table; returns the exit status."""
    arguments = _parser().parse_args()
    if arguments.path is not None:
        print(json.dumps(_measure(arguments)))
        return 0
    arguments.dir.mkdir(parents=True, exist_ok=True)
    _make(arguments.dir, arguments.rows)
    import torch

    print(f"{torch.cuda.get_device_name()}, {os.cpu_count()} processors, torch {torch.__version__}")
    print(f"batches of {arguments.batch_size}, {arguments.steps} steps, {arguments.rows} rows\n")
    print("| path | step alone, images/s | in the loop, images/s | busy | first, s | copies, GB/s |")
    print("|---|--:|--:|--:|--:|--:|", flush=True)
    failed = 0
    for path in arguments.paths or _PATHS:
        command = [sys.executable, __file__, "--path", path, *sys.argv[1:]]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=False)
        if done.returncode != 0:
            print(f"| {path} | failed with status {done.returncode} | | | | |", flush=True)
            failed = 1
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        alone, loop = (arguments.batch_size / found[name] for name in ("step_secs", "loop_secs"))
        print(
            f"| {path} | {alone:,.0f} | {loop:,.0f} | {found['step_secs'] / found['loop_secs']:.3f} |"
            f" {found['first_secs']:.2f} | {found['copy_bytes_per_sec'] / 1e9:.2f} |",
            flush=True,
        )
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "stoker-bench-gpu")
    parser.add_argument("--rows", type=int, default=16_384, help="the number of images (16384)")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--paths", nargs="*", choices=_PATHS, metavar="PATH", help=f"of {', '.join(_PATHS)}")
    parser.add_argument("--path", choices=_PATHS, help=argparse.SUPPRESS)
    return parser


def _make(folder: Path, rows: int) -> None:
    """Writes the JPEG files as a folder for each class and as a table, and the tensors as a table; once."""
    import numpy as np
    import pyarrow as pa

    import stoker

    done = folder / f"made_{rows}"
    if done.exists():
        return
    print(f"making {rows} images in {folder}", flush=True)
    for name in range(_NUM_CLASSES):
        (folder / "files" / f"{name:03}").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as processes:
        images = list(processes.map(_jpeg, range(rows), chunksize=64))
    for number, image in enumerate(images):
        (folder / "files" / f"{number % _NUM_CLASSES:03}" / f"{number:06}.jpg").write_bytes(image)
    labels = pa.array(np.arange(rows, dtype=np.int64) % _NUM_CLASSES)
    lake = stoker.connect(str(folder / "lake"))
    lake.create_table("jpegs", pa.table({"image": pa.array(images, pa.large_binary()), "label": labels}))
    tensor = pa.fixed_shape_tensor(pa.uint8(), (3, 224, 224))
    schema = pa.schema([("image", tensor), ("label", pa.int64())])
    random = np.random.default_rng(0)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, 1024):
            part = labels[start : start + 1024]
            pixels = random.integers(0, 256, (len(part), 3 * 224 * 224), np.uint8)
            storage = pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), 3 * 224 * 224)
            yield pa.record_batch([pa.ExtensionArray.from_storage(tensor, storage), part], schema=schema)

    lake.create_table("tensors", pa.RecordBatchReader.from_batches(schema, batches()))
    done.touch()


def _jpeg(number: int) -> bytes:
    """Returns a JPEG file of smoothed noise, with the size of a photograph of that many pixels."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(number)
    small = Image.fromarray(random.integers(0, 256, (_HEIGHT // 4, _WIDTH // 4, 3), np.uint8))
    grain = random.integers(-14, 15, (_HEIGHT, _WIDTH, 3), np.int16)
    pixels = np.asarray(small.resize((_WIDTH, _HEIGHT), Image.Resampling.BICUBIC), np.int16) + grain
    file = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def _measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Measures one path in this process."""
    import torch

    step = _step()
    images = torch.randint(0, 256, (arguments.batch_size, 3, 224, 224), dtype=torch.uint8, device="cuda")
    labels = torch.randint(0, _NUM_CLASSES, (arguments.batch_size,), device="cuda")
    for _ in range(20):
        step(images, labels)
    alone = _secs_per_step(step, iter([(images, labels)] * arguments.steps))
    with _opened(arguments) as epochs:
        began = time.perf_counter()
        batches = _repeated(epochs)
        first = next(batches)
        torch.cuda.synchronize()
        first_secs = time.perf_counter() - began
        loop = _secs_per_step(step, _limited(first, batches, arguments.steps))
        del batches
        copies = _copy_rate(_limited(None, _repeated(epochs), arguments.steps))
    return {
        "step_secs": alone,
        "loop_secs": loop,
        "first_secs": first_secs,
        "copy_bytes_per_sec": copies,
    }


def _step() -> Callable[[Any, Any], None]:
    """Returns one training step of ResNet-50."""
    import torch
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(num_classes=1000).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    mean = torch.tensor([123.675, 116.28, 103.53], device="cuda").view(1, 3, 1, 1)
    scale = 1 / torch.tensor([58.395, 57.12, 57.375], device="cuda").view(1, 3, 1, 1)

    def step(images: Any, labels: Any) -> None:
        inputs = images.to(torch.bfloat16, memory_format=torch.channels_last).sub_(mean).mul_(scale)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()

    return step


def _secs_per_step(step: Callable[[Any, Any], None], batches: Iterator[tuple[Any, Any]]) -> float:
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    count = 0
    for images, labels in batches:
        step(images, labels)
        count += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def _copy_rate(batches: Iterator[tuple[Any, Any]]) -> float:
    """Returns the bytes per second that reach the device when no model runs, from the second batch on."""
    import torch

    began, num_bytes = None, 0
    for images, _ in batches:
        torch.cuda.synchronize()
        if began is None:
            began = time.perf_counter()
        else:
            num_bytes += images.numel() * images.element_size()
    return num_bytes / (time.perf_counter() - began) if began else 0.0


def _repeated(epochs: Callable[[int], Iterator[tuple[Any, Any]]]) -> Iterator[tuple[Any, Any]]:
    number = 0
    while True:
        yield from epochs(number)
        number += 1


def _limited(first: Any, batches: Iterator[tuple[Any, Any]], count: int) -> Iterator[tuple[Any, Any]]:
    if first is not None:
        yield first
    for _ in range(count - (first is not None)):
        yield next(batches)


@contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator[Callable[[int], Iterator[tuple[Any, Any]]]]:
    """Opens a path: a function that returns the batches of an epoch, on the device."""
    if arguments.path == "torchvision":
        yield _torchvision(arguments)
        return
    lake = arguments.dir / "lake"
    if not arguments.path.endswith("served"):
        yield _stoker(arguments, str(lake))
        return
    with tempfile.TemporaryDirectory() as folder:
        socket = f"unix://{folder}/stoker.sock"
        command = [sys.executable, "-c", _COMMAND, "serve", "--lake", str(lake), "--listen", socket]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while not Path(folder, "stoker.sock").exists():
                if server.poll() is not None:
                    raise RuntimeError(f"the server ended with status {server.returncode}")
                time.sleep(0.01)
            yield _stoker(arguments, socket)
        finally:
            server.terminate()
            server.wait()


def _stoker(arguments: argparse.Namespace, where: str) -> Callable[[int], Iterator[tuple[Any, Any]]]:
    import stoker

    is_jpeg = "jpeg" in arguments.path
    is_copied_in_loop = "copied in the loop" in arguments.path
    options: dict[str, Any] = {}
    if is_jpeg:
        transform = stoker.ImageTransform(size=224, random_resized_crop=True, horizontal_flip=0.5)
        options["decode"] = {"image": transform}
    query = stoker.connect(where).sql(f"SELECT image, label FROM {'jpegs' if is_jpeg else 'tensors'}")
    loader = query.torch(
        batch_size=arguments.batch_size,
        device=None if is_copied_in_loop else "cuda",
        last_batch="drop",
        rank=0,
        world_size=1,
        **options,
    )

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        loader.set_epoch(number)
        for batch in loader:
            if is_copied_in_loop:
                batch = batch.to("cuda")
            yield batch["image"], batch["label"]

    return epoch


def _torchvision(arguments: argparse.Namespace) -> Callable[[int], Iterator[tuple[Any, Any]]]:
    import torch
    from torchvision import datasets
    from torchvision.transforms import v2

    transform = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor()])
    loader = torch.utils.data.DataLoader(
        datasets.ImageFolder(str(arguments.dir / "files"), transform),
        batch_size=arguments.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=os.cpu_count() or 1,
        pin_memory=True,
        persistent_workers=True,
    )

    def epoch(_: int) -> Iterator[tuple[Any, Any]]:
        for images, labels in loader:
            yield images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)

    return epoch


if __name__ == "__main__":
    sys.exit(main())
