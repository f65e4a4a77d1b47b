"""Eras remembered in a small file, so that a program that starts again pays no probe."""

from __future__ import annotations

import contextlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from toolyard.clients.handshake import Era
from toolyard.config.file_writer import write_private_file

__all__ = ["FileEraCache"]

_MAX_FILE_ERAS = 1000
_ERA_VALUES = ("modern", "legacy", "sse")


class FileEraCache:
    """What is in the file is a hint: a lost or broken file costs a probe and nothing else."""

    def __init__(self, path: Path, key: Callable[[], bytes] = bytes) -> None:
        """``key`` gives the key of the hashes by which servers are named in the file."""
        self._path = path
        self._key = key
        self._eras: dict[str, Era] | None = None

    def recall(self, key: str) -> Era | None:
        return self._load_file().get(self._name(key))

    def _name(self, key: str) -> str:
        return hmac.digest(self._key(), key.encode(), "sha256").hex()

    def remember(self, key: str, era: Era | None) -> None:
        known, key = self._load_file(), self._name(key)
        if known.get(key) == era:
            return
        known.pop(key, None)
        if era is not None:
            known[key] = era
        self._save_file(dict(list(known.items())[-_MAX_FILE_ERAS:]))

    def _load_file(self) -> dict[str, Era]:
        if self._eras is None:
            self._eras = {}
            with contextlib.suppress(OSError, ValueError, RecursionError):
                read: object = json.loads(self._path.read_bytes())
                if isinstance(read, dict):
                    items = cast("dict[str, Any]", read).items()
                    self._eras = {key: era for key, era in items if era in _ERA_VALUES}
        return self._eras

    def _save_file(self, eras: dict[str, Era]) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self._path, json.dumps(eras).encode())
