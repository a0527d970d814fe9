"""Measures how fast images, sound, video and compressed tensors become arrays, beside libraries and ceilings.

    python clients/python/bench/bench_media.py --stoker target/release/stoker

``cargo xtask bench media`` builds what it needs and runs it. Each path decodes the rows of a table in a loop; its
ceiling or peer decodes the same files in this process, in turn with it, ``--repeat`` times. All that decode have
``--threads`` threads. Figures are medians; ``x`` is the median of the ratios within each turn, and ``x CPU`` that of
the processor times.

- JPEG of 256 x 256 at full size: beside libjpeg-turbo alone (``simplejpeg``).
- JPEG of 3000 x 2000 to 224 x 224: beside Pillow with ``draft``, which decodes at a smaller scale too.
- Sound: FLAC of two channels and 10 s, all of it and one second from its middle, beside ``soundfile``, which seeks.
- Video: 8 frames of 640 x 480, four cameras in each row, key frame every 30 frames, H.264 with B frames: beside PyAV's
  decoder on packets in memory (the ceiling), and beside PyAV that seeks to the key frame.
- Clips from S3: the same frames of one camera. The figure is the bytes that leave ``stoker bench object-server``, which
  waits ``--latency-ms`` before each response, as it counts them: plans and metadata are included. It stands beside the
  bytes from the key frame to the last frame: bar at most 1.1.
- Limited storage: ``float32[64, 64]`` tensors from the object server, which sends ``--mb-per-sec`` at most, beside the
  plain column (bar: 0.8 times the ratio of the bytes), and beside GETs of the same bytes, which are the ceiling.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from harness.folder import data_folder
from harness.store import StoreError, serve
from harness.turns import Pair, measure, parser, report

#: The folder that the object server serves as a bucket.
_BUCKET = "media"


def main() -> int:
    """Measures and prints tables; returns the exit status."""
    arguments = _parser().parse_args()
    try:
        with data_folder(arguments.dir, "stoker-media-") as folder, ExitStack() as stack:
            (folder / _BUCKET).mkdir(exist_ok=True)
            pairs = [pair for pair in _pairs(folder, stack, arguments) if arguments.only in pair.name]
            found = measure(pairs, arguments.repeat)
            heading = (
                f"{arguments.threads} threads, medians of {arguments.repeat} turns; {os.cpu_count()} processors; "
                f"S3 answers after {arguments.latency_ms} ms; limited storage sends {arguments.mb_per_sec:g} MB/s"
            )
            report(pairs, found, heading, arguments.json)
    except StoreError as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    found = parser("Measure how fast media and compressed tensors become arrays.")
    add = found.add_argument
    add("--threads", type=int, default=1, help="threads that decode (default %(default)s)")
    add("--divisor", type=int, default=1, help="divides the number of rows, for a quick look (default %(default)s)")
    add("--latency-ms", type=int, default=20, help="what S3 waits before it answers (default %(default)s)")
    add("--mb-per-sec", type=float, default=100, help="what limited storage sends (default %(default)s)")
    return found


def _pairs(folder: Path, stack: ExitStack, arguments: argparse.Namespace) -> Iterator[Pair]:
    """Yields all pairs. Tables are written, and servers started, when the first pair needs them."""
    from media_parts import clips, codecs, images, sounds, videos

    import stoker

    def server(latency_ms: int, mb_per_sec: float | None) -> Callable[[], str]:
        return cache(lambda: stack.enter_context(serve(arguments.stoker, folder, latency_ms, mb_per_sec=mb_per_sec)))

    lake = stoker.connect(str(folder / "lake"))
    for part in (images, sounds, videos):
        yield from part.pairs(lake, arguments.divisor, arguments.threads)
    yield from clips.pairs(folder, _BUCKET, server(arguments.latency_ms, None), arguments.divisor)
    yield from codecs.pairs(folder, _BUCKET, server(0, arguments.mb_per_sec), arguments.divisor)


if __name__ == "__main__":
    sys.exit(main())
