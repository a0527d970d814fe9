"""States as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stoker._errors import InvalidRequestError

__all__ = ["state_text"]


def state_text(state: Mapping[str, Any] | str) -> str:
    """Returns a state as JSON text.

    Raises:
        InvalidRequestError: The state contains values that JSON cannot hold.
    """
    if isinstance(state, str):
        return state
    if not isinstance(state, Mapping):
        raise InvalidRequestError(f"cannot read stream state: it is {type(state).__name__}, not a dict or JSON text")
    try:
        return json.dumps(state)
    except (TypeError, ValueError, RecursionError) as failed:
        raise InvalidRequestError(f"cannot read stream state: {failed}") from failed
