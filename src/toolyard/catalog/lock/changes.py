"""What a server has now, held against what was accepted of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from toolyard.catalog.lock.diff import diff_definitions, diff_text
from toolyard.catalog.lock.errors import Outdated
from toolyard.catalog.lock.pins import Pin, ServerPins
from toolyard.catalog.lock.rename_detection import detect_renames
from toolyard.types.catalog import ValidatedListing
from toolyard.types.tool import JsonObject

__all__ = ["Change", "ChangeKind", "apply_changes", "compare_pins", "pin_contents", "select_changes"]


class ChangeKind(StrEnum):
    """What became different."""

    NEW = "new"
    """A tool that was never accepted."""
    CHANGED = "changed"
    """A tool whose definition is another than the accepted one."""
    RENAMED = "renamed"
    """A tool that was accepted under another name, which is gone."""
    REMOVED = "removed"
    """An accepted tool that the server no longer has."""
    INSTRUCTIONS = "instructions"
    """What the server says of itself."""
    PACKAGE = "package"
    """Which package the server's command fetches."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``tool`` is the server's name of it now; ``was`` the accepted name of a renamed one."""

    kind: ChangeKind
    server_id: str
    tool: str = ""
    was: str = ""
    before: Pin | None = None
    after: Pin | None = None
    texts: tuple[str, str] = ("", "")

    @property
    def id(self) -> str:
        """What accepts it: the tool's canonical id, or the server's."""
        return f"{self.server_id}/{self.tool}" if self.tool else self.server_id

    @property
    def key(self) -> str:
        """Names the difference to the letter: whoever accepts it accepts what was shown, and nothing else."""
        sides = [pin.hash if pin is not None else "" for pin in (self.before, self.after)]
        said = json.dumps([self.kind.value, self.tool, self.was, *sides, *self.texts], ensure_ascii=True)
        return sha256(said.encode("ascii")).hexdigest()[:24]

    @property
    def blocks(self) -> bool:
        """Whether a tool stays in quarantine for it until it is accepted."""
        return self.kind in (ChangeKind.NEW, ChangeKind.CHANGED, ChangeKind.RENAMED)

    @property
    def reason(self) -> str:
        """One sentence, in our own words."""
        return {
            ChangeKind.NEW: "it is new and was not accepted",
            ChangeKind.CHANGED: "its definition is not the one that was accepted",
            ChangeKind.RENAMED: f"it was accepted as '{self.was}', and was renamed",
            ChangeKind.REMOVED: "the server no longer has it",
            ChangeKind.INSTRUCTIONS: "the server's instructions are not those that were accepted",
            ChangeKind.PACKAGE: "its command fetches another package than the one that was accepted",
        }[self.kind]

    def diff(self) -> list[str]:
        """The difference in lines for people. They hold the server's words."""
        if self.kind in (ChangeKind.INSTRUCTIONS, ChangeKind.PACKAGE):
            return diff_text(*self.texts)
        return diff_definitions(_definition_or_empty(self.before), _definition_or_empty(self.after))


def _definition_or_empty(pin: Pin | None) -> JsonObject:
    return {} if pin is None else pin.definition


def pin_contents(contents: ValidatedListing, package: str | None = None) -> ServerPins:
    """Everything that a server has now, as accepted."""
    tools = {definition.name: Pin.from_definition(definition) for definition in contents.definitions}
    return ServerPins(tools, contents.listing.instructions or None, package)


def compare_pins(server_id: str, now: ServerPins, locked: ServerPins | None) -> list[Change]:
    """All changes, by tool. A server that is not in the lock at all has only new tools."""
    accepted = locked or ServerPins()
    changes = [
        Change(ChangeKind.CHANGED, server_id, name, before=accepted.tools[name], after=pin)
        for name, pin in now.tools.items()
        if name in accepted.tools and accepted.tools[name].hash != pin.hash
    ]
    fresh = {name: pin for name, pin in now.tools.items() if name not in accepted.tools}
    gone = {name: pin for name, pin in accepted.tools.items() if name not in now.tools}
    before = detect_renames(fresh, gone)
    for name, pin in fresh.items():
        was = before.get(name)
        if was is None:
            changes.append(Change(ChangeKind.NEW, server_id, name, after=pin))
        else:
            changes.append(Change(ChangeKind.RENAMED, server_id, name, was, gone.pop(was), pin))
    changes += [Change(ChangeKind.REMOVED, server_id, name, before=pin) for name, pin in gone.items()]
    changes.sort(key=lambda change: change.tool)
    if locked is not None:
        changes += _compare_server_fields(server_id, now, locked)
    return changes


def apply_changes(locked: ServerPins | None, now: ServerPins, changes: Iterable[Change]) -> ServerPins:
    """The lock of a server after somebody accepted these changes, and no others."""
    pins = locked or ServerPins()
    tools, instructions, package = dict(pins.tools), pins.instructions, pins.package
    for change in changes:
        if change.kind is ChangeKind.INSTRUCTIONS:
            instructions = change.texts[1] or None
        elif change.kind is ChangeKind.PACKAGE:
            package = change.texts[1] or None
        else:
            tools.pop(change.was or change.tool, None)
            if change.after is not None:
                tools[change.tool] = change.after
    if locked is None:
        instructions, package = now.instructions, now.package
    return ServerPins(tools, instructions, package)


def select_changes(changes: Iterable[Change], keys: Collection[str]) -> list[Change]:
    """The changes that these keys name. Raises Outdated where one of them names none any more."""
    there = {change.key: change for change in changes}
    if not keys or not there.keys() >= set(keys):
        raise Outdated(
            "what was to be accepted is not what there is now: nothing was accepted",
            hint="look at the changes again",
        )
    return [change for key, change in there.items() if key in keys]


def _compare_server_fields(server_id: str, now: ServerPins, locked: ServerPins) -> Iterable[Change]:
    if (now.instructions or "") != (locked.instructions or ""):
        yield Change(
            ChangeKind.INSTRUCTIONS, server_id, texts=(locked.instructions or "", now.instructions or "")
        )
    if (now.package or "") != (locked.package or ""):
        yield Change(ChangeKind.PACKAGE, server_id, texts=(locked.package or "", now.package or ""))
