"""Memory of notices that earlier commands have shown, so that each appears once."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from toolyard.config.files import read_regular_file, write_private_file
from toolyard.errors import ConfigError

__all__ = ["NoticeMemory"]

_FILE_NAME = "notices.json"
_MAX_KINDS = 100


class NoticeMemory:
    """Hashes of the notices that the last command showed for a configuration file.

    Its file is only a hint: if it is lost, a notice appears once more.
    """

    def __init__(self, data_dir: Path, configuration_file: str | None) -> None:
        self._path = data_dir / _FILE_NAME
        self._configuration_file = configuration_file or ""

    def take_new(self, kind: str, notices: Sequence[str]) -> list[str]:
        """Return the notices that were not shown before, and remember exactly these: one that ends and comes
        back is new again."""
        key, hashes = _hash(f"{kind} {self._configuration_file}"), [_hash(text) for text in notices]
        stored = self._load()
        known = stored.pop(key, [])
        if set(hashes) != set(known):
            kept = list(stored.items())[-_MAX_KINDS:]
            self._save({**dict(kept), key: hashes} if hashes else dict(kept))
        return [text for text, hashed in zip(notices, hashes, strict=True) if hashed not in known]

    def _load(self) -> dict[str, list[str]]:
        with contextlib.suppress(ConfigError, ValueError, RecursionError):
            content: Any = json.loads(read_regular_file(self._path))
            if isinstance(content, dict):
                items = cast("dict[str, Any]", content).items()
                return {key: value for key, value in items if isinstance(value, list)}
        return {}

    def _save(self, hashes: dict[str, list[str]]) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self._path, json.dumps(hashes).encode())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
