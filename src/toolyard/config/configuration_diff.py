"""Difference between two configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from toolyard.types.server import Bundle, Configuration, Provenance, Server

__all__ = ["ConfigDiff", "diff_configurations"]

T = TypeVar("T", Server, Bundle)
_NO_PROVENANCE = Provenance("code")


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    """Ids of added, removed and changed servers; ``bundles`` has the ids of all bundles that differ."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.bundles)


def diff_configurations(old: Configuration, new: Configuration) -> ConfigDiff:
    """Compare two configurations by entry. The location of an entry in its file does not matter."""
    bundle_ids = dict.fromkeys([*old.bundles, *new.bundles])
    return ConfigDiff(
        added=tuple(key for key in new.servers if key not in old.servers),
        removed=tuple(key for key in old.servers if key not in new.servers),
        changed=tuple(
            key for key in new.servers if key in old.servers and _is_different(key, old.servers, new.servers)
        ),
        bundles=tuple(key for key in bundle_ids if _is_different(key, old.bundles, new.bundles)),
    )


def _is_different(key: str, old: Mapping[str, T], new: Mapping[str, T]) -> bool:
    before, after = old.get(key), new.get(key)
    if before is None or after is None:
        return before is not after
    return replace(before, provenance=_NO_PROVENANCE) != replace(after, provenance=_NO_PROVENANCE)
