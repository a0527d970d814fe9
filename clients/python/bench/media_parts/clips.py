"""Clips of videos in S3: the bytes that leave storage, beside those from the key frame to the last frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import stoker
from harness.store import sent_bytes, storage_options
from harness.turns import Figure, Pair, Unit
from media_parts.tables import Files
from media_parts.videos import CAMERAS, START, clip, decoded, h264, packets_of

__all__ = ["pairs"]

_UNIT = Unit("KB/row", "CPU ms/row", digits=1)
_BATCH_ROWS = 8
#: The noise in the frames, in steps of 255: a video of 10 s then has about 1 MB, as one of a camera.
_NOISE = 16


def pairs(folder: Path, bucket: str, endpoint: Callable[[], str], divisor: int) -> Iterator[Pair]:
    """Yields the pair: a clip of each video, read through the server of ``folder`` by new connections."""
    lake = stoker.connect(str(folder / bucket / "lake"))
    # The table has an index of each video, by which a clip is read alone.
    options = {"videos": ["video"]}
    made = lambda row: [h264(row % CAMERAS, _NOISE)]  # noqa: E731
    files = Files(lake, "clips", ["video"], max(128 // divisor, 8), made, options)

    def stream() -> Figure:
        assert files.query  # the table is written before its bytes are counted
        before, used = sent_bytes(endpoint()), time.process_time()
        remote = stoker.connect(f"s3://{bucket}/lake", storage_options=storage_options(endpoint()))
        options = {"batch_size": _BATCH_ROWS, "shuffle": False, "decode": {"video": clip()}}
        with remote.sql("SELECT video FROM clips").stream(evaluation=True, **options) as batches:
            rows = sum(batch.num_valid for batch in batches)
        used = time.process_time() - used
        return Figure((sent_bytes(endpoint()) - before) / rows / 1e3, used / rows * 1e3)

    def needed() -> Figure:
        used, num_bytes = time.process_time(), 0
        for (video,) in files.rows:
            extradata, packets, limits = packets_of(video, START)
            num_bytes += sum(len(data) for data, *_ in packets)
            decoded(extradata, packets, limits, START)
        return Figure(num_bytes / files.num_rows / 1e3, (time.process_time() - used) / files.num_rows * 1e3)

    beside = "key frame to last frame, decoded by PyAV"
    yield Pair("clips from S3, bytes", stream, beside, needed, _UNIT, 1.1, at_least=False)
