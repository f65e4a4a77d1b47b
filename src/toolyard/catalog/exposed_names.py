"""Exposed names: what a model or a gateway client calls a tool.

A name is made from a template, with every character that providers refuse turned into ``_``. A name that is
too long, reserved, or claimed by several tools gets a hash of the tool's canonical id, so that none of the
claimants silently takes the place of another. The map is the only way back: names are never taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from toolyard.errors import ConfigError, Problem

__all__ = [
    "MAX_EXPOSED_NAME_CHARS",
    "RESERVED_NAMES",
    "ExposedNames",
    "NameAssigner",
    "NameTemplates",
    "RenameReason",
    "RenamedTool",
    "ServerToolNames",
    "ToolAddress",
]

MAX_EXPOSED_NAME_CHARS = 64

RESERVED_NAMES = frozenset(
    {
        "find_files",
        "grep",
        "list_dir",
        "result_read",
        "tools_call",
        "tools_describe",
        "tools_list",
        "tools_search",
        "view_file",
        "web_fetch",
    }
)
"""Names of native and meta tools. Reserved whether or not these are switched on, so that switching one on
renames nothing."""

_DISALLOWED_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASH_DIGITS_BY_ATTEMPT = (0, 8, 16, 32, MAX_EXPOSED_NAME_CHARS - 1)
"""Hexadecimal digits of the hash, by attempt: none first, more each time a name is still not unique."""
_LAST_ATTEMPT = len(_HASH_DIGITS_BY_ATTEMPT) - 1
_MAX_CACHED_NAME_SETS = 64
_MAX_RIVALS_SHOWN = 5
_SETTING_BY_TEMPLATE = {"server": "naming_template", "instance": "instance_naming_template"}


class ToolAddress(NamedTuple):
    """The tool that a name stands for: the server's or instance's id, and the server's own name of it."""

    server_id: str
    tool: str

    @property
    def id(self) -> str:
        """The canonical id."""
        return f"{self.server_id}/{self.tool}"


@dataclass(frozen=True, slots=True)
class NameTemplates:
    """How names are made: ``{tool}`` is the tool's name, ``{server}`` or ``{slug}`` whose it is.

    Raises ConfigError for a template that cannot be used.
    """

    server: str = "{server}_{tool}"
    instance: str = "mcp_{slug}__{tool}"

    def __post_init__(self) -> None:
        problems = [
            problem
            for field, text in (("server", self.server), ("instance", self.instance))
            for problem in _template_problems(field, text)
        ]
        if problems:
            raise ConfigError(problems)


@dataclass(frozen=True, slots=True)
class ServerToolNames:
    """The tools of one server or instance that are to be named.

    ``id`` is the first part of their canonical ids (``github``, ``@ann/github``), ``label`` what stands in
    the name for it: the server's id or the instance's slug.
    """

    id: str
    label: str
    tools: tuple[str, ...]
    instance: bool = False
    native: bool = False
    """Toolyard's own tools: they are called what they are called, and the reserved names are theirs."""


class RenameReason(StrEnum):
    """Why a tool does not have the name that its template gives."""

    RESERVED = "reserved"
    """A native or meta tool has it."""
    COLLISION = "collision"
    """Another tool claims it too."""
    LENGTH = "length"
    """It is longer than providers accept."""


@dataclass(frozen=True, slots=True)
class RenamedTool:
    """A tool whose name carries a hash, and why. ``rivals`` are other tools that claim ``wanted``, a few."""

    target: ToolAddress
    wanted: str
    name: str
    reason: RenameReason
    rivals: tuple[ToolAddress, ...] = ()

    def __str__(self) -> str:
        if self.reason is RenameReason.RESERVED:
            why = f"'{self.wanted}' is a tool of Toolyard's own"
        elif self.reason is RenameReason.LENGTH:
            why = f"'{self.wanted}' has more than {MAX_EXPOSED_NAME_CHARS} characters"
        else:
            why = f"'{self.wanted}' is also claimed by {', '.join(rival.id for rival in self.rivals)}"
        return f"{self.target.id} is exposed as '{self.name}': {why}"


@dataclass(frozen=True, slots=True)
class ExposedNames:
    """The exposed names of a set of tools, in alphabetical order, and the way back."""

    targets: Mapping[str, ToolAddress]
    renamed_tools: tuple[RenamedTool, ...]
    _name_by_target: Mapping[ToolAddress, str]

    def find(self, name: str) -> ToolAddress | None:
        """The tool that ``name`` stands for."""
        return self.targets.get(name)

    def exposed_name(self, server_id: str, tool: str) -> str | None:
        """The exposed name of a tool, None where it is not in the set."""
        return self._name_by_target.get(ToolAddress(server_id, tool))


class NameAssigner:
    """Gives names to sets of tools. The same set gets the same names, whenever, wherever, in any order."""

    def __init__(
        self, templates: NameTemplates | None = None, reserved: Collection[str] = RESERVED_NAMES
    ) -> None:
        self._templates = templates or NameTemplates()
        self._reserved = frozenset(reserved)
        # A set of tools is named anew only when it changed: callers ask on every listing and every call.
        self._assign_with_cache = lru_cache(maxsize=_MAX_CACHED_NAME_SETS)(self._assign_names)

    def names(self, groups: Iterable[ServerToolNames]) -> ExposedNames:
        """A name for every tool of every group: unique, and reversible by the map."""
        return self._assign_with_cache(tuple(sorted(set(groups), key=lambda group: (group.id, group.tools))))

    def prefix(self, label: str, *, instance: bool = False) -> str:
        """What the names of a server's or an instance's tools begin with, where none had to be changed.

        ``label`` is the server's id or the instance's slug.
        """
        return _template_affixes(self._templates, _DISALLOWED_CHARACTER.sub("_", label), instance)[0]

    def _assign_names(self, groups: tuple[ServerToolNames, ...]) -> ExposedNames:
        claims = _collect_claims(groups, self._templates)
        names, attempts = _resolve_conflicts(claims, self._reserved)
        order = sorted(range(len(names)), key=names.__getitem__)
        targets = {names[place]: claims.targets[place] for place in order}
        return ExposedNames(
            targets=MappingProxyType(targets),
            renamed_tools=_list_renamed_tools(claims, names, attempts, self._reserved),
            _name_by_target=MappingProxyType({target: name for name, target in targets.items()}),
        )


class _NameClaims(NamedTuple):
    """Parallel lists, one place a tool: whose it is, the name it wants, whether that is unaltered, and
    whether it may be a reserved one."""

    targets: list[ToolAddress]
    wanted: list[str]
    exact: list[bool]
    native: list[bool]


def _collect_claims(groups: tuple[ServerToolNames, ...], templates: NameTemplates) -> _NameClaims:
    claims = _NameClaims([], [], [], [])
    seen: set[ToolAddress] = set()
    for group in groups:
        label = _DISALLOWED_CHARACTER.sub("_", group.label)
        before, after = ("", "") if group.native else _template_affixes(templates, label, group.instance)
        for tool in group.tools:
            target = ToolAddress(group.id, tool)
            if target in seen:
                continue
            seen.add(target)
            clean = _DISALLOWED_CHARACTER.sub("_", tool)
            claims.targets.append(target)
            claims.wanted.append(f"{before}{clean}{after}")
            claims.exact.append(clean == tool and label == group.label)
            claims.native.append(group.native)
    return claims


def _template_affixes(templates: NameTemplates, label: str, instance: bool) -> tuple[str, str]:
    """What stands before and after the tool's own name."""
    template = templates.instance if instance else templates.server
    filled = template.replace("{server}", "{slug}").replace("{slug}", label)
    before, _, after = filled.partition("{tool}")
    return _DISALLOWED_CHARACTER.sub("_", before), _DISALLOWED_CHARACTER.sub("_", after)


def _resolve_conflicts(claims: _NameClaims, reserved: frozenset[str]) -> tuple[list[str], list[int]]:
    """The final names, and how often each tool had to try.

    Every round looks at all names at once and sends all holders of a contested one to a longer hash, so the
    outcome does not depend on any order.
    """
    names = list(claims.wanted)
    attempts = [0] * len(names)
    contested = [place for place, name in enumerate(names) if not _is_valid_length(name)]
    while True:
        for place in contested:
            attempts[place] += 1
            names[place] = _name_with_hash(claims.wanted[place], claims.targets[place], attempts[place])
        contested = _find_contested(claims, names, attempts, reserved)
        if not contested:
            return names, attempts


def _find_contested(
    claims: _NameClaims, names: list[str], attempts: list[int], reserved: frozenset[str]
) -> list[int]:
    if len(set(names)) == len(names) and reserved.isdisjoint(names):
        return []
    holders: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        holders.setdefault(name, []).append(place)
    contested: list[int] = []
    for name, places in holders.items():
        if name in reserved:
            contested += [place for place in places if not claims.native[place]]
        elif len(places) > 1:
            keeper = _pick_keeper(places, claims, attempts)
            contested += [place for place in places if place != keeper]
    return contested


def _pick_keeper(places: list[int], claims: _NameClaims, attempts: list[int]) -> int | None:
    """The claimant that stays: the only one whose own words are the name, letter for letter.

    Nobody stays where a hashed name is met, as only a server that means to deceive publishes such a one;
    unless that hash is the longest, which has nowhere left to go.
    """
    for place in places:
        if attempts[place] == _LAST_ATTEMPT:
            return place
    if any(attempts[place] for place in places):
        return None
    exact = [place for place in places if claims.exact[place]]
    return exact[0] if len(exact) == 1 else None


def _name_with_hash(wanted: str, target: ToolAddress, attempt: int) -> str:
    digits = _HASH_DIGITS_BY_ATTEMPT[attempt]
    # The two parts apart, because "a/b" + "c" and "a" + "b/c" make the same canonical id.
    identity = f"{target.server_id}\0{target.tool}".encode("utf-8", "surrogatepass")
    digest = sha256(identity).hexdigest()[:digits]
    room = MAX_EXPOSED_NAME_CHARS - digits - 1
    if len(wanted) <= room:
        return f"{wanted}_{digest}"
    head = room // 2
    tail = room - 1 - head
    return f"{wanted[:head]}_{digest}" + (f"_{wanted[-tail:]}" if tail > 0 else "")


def _list_renamed_tools(
    claims: _NameClaims, names: list[str], attempts: list[int], reserved: frozenset[str]
) -> tuple[RenamedTool, ...]:
    hashed = [place for place, attempt in enumerate(attempts) if attempt]
    if not hashed:
        return ()
    contested = {claims.wanted[place] for place in hashed}
    claimants: dict[str, list[ToolAddress]] = {}
    for target, wanted in sorted(zip(claims.targets, claims.wanted, strict=True)):
        if wanted in contested:
            claimants.setdefault(wanted, []).append(target)
    renamed: list[RenamedTool] = []
    for place in hashed:
        target, wanted = claims.targets[place], claims.wanted[place]
        others = (rival for rival in claimants[wanted] if rival != target)
        rivals = tuple(islice(others, _MAX_RIVALS_SHOWN))
        if wanted in reserved:
            reason = RenameReason.RESERVED
        else:
            reason = RenameReason.COLLISION if _is_valid_length(wanted) else RenameReason.LENGTH
        renamed.append(RenamedTool(target, wanted, names[place], reason, rivals))
    return tuple(sorted(renamed, key=lambda entry: entry.target))


def _is_valid_length(name: str) -> bool:
    return 0 < len(name) <= MAX_EXPOSED_NAME_CHARS


def _template_problems(field: str, text: str) -> list[Problem]:
    path = _SETTING_BY_TEMPLATE[field]
    hint = "a template looks like '{server}_{tool}'"
    if text.count("{tool}") != 1:
        return [Problem(f"'{text}' must contain {{tool}} once", path=path, hint=hint)]
    rest = text.replace("{tool}", "").replace("{server}", "").replace("{slug}", "")
    if "{" in rest or "}" in rest:
        return [Problem(f"'{text}' has a placeholder that is not known", path=path, hint=hint)]
    return []
