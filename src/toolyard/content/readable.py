"""JSON that a model can read."""

from __future__ import annotations

import json

__all__ = ["readable"]


def readable(value: object) -> str:
    """The value as JSON on one line, unicode as it is; a text as it stands. Never raises."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except RecursionError:
        return "(JSON that is nested too deeply to be shown)"
    except (TypeError, ValueError) as error:
        return f"(not JSON: {error})"
