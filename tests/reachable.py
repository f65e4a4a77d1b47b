"""Search of memory, for tests of what is kept of something that is gone."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, cast

from toolyard.concurrency.lru_cache import LruCache

__all__ = ["find_keys", "reachable_objects"]


_EXCLUDED = (type, ModuleType, asyncio.AbstractEventLoop, logging.Logger)


def find_keys(root: object, prefix: str, *, bounded: bool = True) -> set[str]:
    """Return the beginning of each key, in all dictionaries and sets that an object keeps in memory, if it is
    a text with ``prefix``. A key may be a tuple that begins with the text.

    Unless ``bounded``, keys of caches with a maximum size do not count.
    """
    texts = (
        key[0] if isinstance(key, tuple) and key else key
        for each in reachable_objects(root)
        if isinstance(each, dict | set | frozenset) and (bounded or not isinstance(each, LruCache))
        for key in cast("Iterable[Any]", each)
    )
    return {text for text in texts if isinstance(text, str) and text.startswith(prefix)}


def reachable_objects(root: object) -> Iterator[Any]:
    """Yield an object and all that it refers to, but no code, log or event loop."""
    seen, waiting = {id(root)}, [root]
    while waiting:
        each = waiting.pop()
        yield each
        # A function refers to all of its module. What it keeps itself is in its closure.
        parts = (
            [each.__closure__, each.__defaults__]
            if isinstance(each, FunctionType)
            else gc.get_referents(each)
        )
        for part in parts:
            if id(part) not in seen and not isinstance(part, _EXCLUDED):
                seen.add(id(part))
                waiting.append(part)
