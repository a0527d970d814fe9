"""A moto server that creates objects atomically, as S3 does.

By itself, moto looks whether an object is there and writes it then, and lets another writer do the same in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from moto.s3.responses import S3Response
from moto.server import main

writes = threading.Lock()


def one_at_a_time(handle: Callable[..., Any]) -> Callable[..., Any]:
    """The same handler, which waits for the others."""

    @wraps(handle)
    def handle_alone(*args: Any, **kwargs: Any) -> Any:
        with writes:
            return handle(*args, **kwargs)

    return handle_alone


if __name__ == "__main__":
    for name in ("_key_response_put", "_key_response_post"):
        setattr(S3Response, name, one_at_a_time(getattr(S3Response, name)))
    main()
