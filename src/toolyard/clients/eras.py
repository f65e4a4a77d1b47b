"""Eras remembered in a small file, so that a program that starts again pays no probe."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, cast

from toolyard.clients.handshake import Era

__all__ = ["FileEras"]

_MOST = 1000
_ERAS = ("modern", "legacy", "sse")


class FileEras:
    """What is in the file is a hint: a lost or broken file costs a probe and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Era] | None = None

    def recall(self, key: str) -> Era | None:
        return self._load().get(key)

    def remember(self, key: str, era: Era | None) -> None:
        known = self._load()
        if known.get(key) == era:
            return
        known.pop(key, None)
        if era is not None:
            known[key] = era
        self._save(dict(list(known.items())[-_MOST:]))

    def _load(self) -> dict[str, Era]:
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError, ValueError, RecursionError):
                read: object = json.loads(self._path.read_bytes())
                if isinstance(read, dict):
                    items = cast("dict[str, Any]", read).items()
                    self._known = {key: era for key, era in items if era in _ERAS}
        return self._known

    def _save(self, known: dict[str, Era]) -> None:
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                fresh.write_text(json.dumps(known))
                fresh.replace(self._path)
            finally:
                # Still there only where the disk is full, or the folder became unwritable.
                fresh.unlink(missing_ok=True)
