"""A moto server that creates objects atomically, as S3 does.

moto itself first checks whether an object exists and then writes it, so that another writer may create the object in
between.
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
    """Returns the same handler, under a lock, so that one call runs at a time."""

    @wraps(handle)
    def handle_alone(*args: Any, **kwargs: Any) -> Any:
        with writes:
            return handle(*args, **kwargs)

    return handle_alone


if __name__ == "__main__":
    for name in ("_key_response_put", "_key_response_post"):
        setattr(S3Response, name, one_at_a_time(getattr(S3Response, name)))
    main()
