"""Exposed names: the names under which models and gateway clients call tools.

A name is built from a template; characters that model providers refuse become ``_``. A name that is too long,
reserved, or claimed by several tools gets a hash of the tool's canonical id, so that no tool silently
replaces another. Names are never parsed: only the mapping leads from a name to its tool.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakValueDictionary

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
"""Names of built-in and meta tools. They are reserved even if these are disabled, so that enabling one does
not rename other tools."""

_DISALLOWED_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASH_DIGITS_BY_ATTEMPT = (0, 8, 16, 32, MAX_EXPOSED_NAME_CHARS - 1)
"""Hexadecimal digits of the hash by attempt: none at first, more each time the name is not unique."""
_LAST_ATTEMPT = len(_HASH_DIGITS_BY_ATTEMPT) - 1
_MAX_RIVALS_SHOWN = 5
_SETTING_BY_TEMPLATE = {"server": "naming_template", "instance": "instance_naming_template"}


class ToolAddress(NamedTuple):
    """Address of a tool: the id of its server or instance, and the tool's name on that server."""

    server_id: str
    tool: str

    @property
    def id(self) -> str:
        """Canonical id of the tool."""
        return f"{self.server_id}/{self.tool}"


@dataclass(frozen=True, slots=True)
class NameTemplates:
    """Templates of exposed names for tools of servers and of instances.

    ``{tool}`` is replaced by the tool's name, ``{server}`` or ``{slug}`` by the server's id or the instance's
    slug. Raise ConfigError for an invalid template.
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
    """Names of the tools of one server or instance.

    ``id`` is the first part of their canonical ids (``github``, ``@ann/github``). ``label`` is its
    replacement in exposed names: the server's id or the instance's slug.
    """

    id: str
    label: str
    tools: tuple[str, ...]
    instance: bool = False
    native: bool = False
    """True for Toolyard's built-in tools, which keep their names and may use the reserved ones."""


class RenameReason(StrEnum):
    """Reason why a tool's exposed name differs from the one built by its template."""

    RESERVED = "reserved"
    """The name is reserved for a built-in or meta tool."""
    COLLISION = "collision"
    """Another tool claims the same name."""
    LENGTH = "length"
    """The name is longer than providers accept."""


@dataclass(frozen=True, slots=True)
class RenamedTool:
    """A tool whose name contains a hash, with the reason.

    ``wanted`` is the name built by the template, ``rivals`` a few of the other tools that claim it.
    """

    target: ToolAddress
    requested_name: str
    name: str
    reason: RenameReason
    rivals: tuple[ToolAddress, ...] = ()

    def __str__(self) -> str:
        if self.reason is RenameReason.RESERVED:
            why = f"'{self.requested_name}' is reserved for a built-in tool"
        elif self.reason is RenameReason.LENGTH:
            why = f"'{self.requested_name}' has more than {MAX_EXPOSED_NAME_CHARS} characters"
        else:
            why = f"'{self.requested_name}' is also claimed by {', '.join(rival.id for rival in self.rivals)}"
        return f"{self.target.id} is exposed as '{self.name}': {why}"


@dataclass(frozen=True, eq=False)
class ExposedNames:
    """Mapping between exposed names, in alphabetical order, and tools."""

    targets: Mapping[str, ToolAddress]
    renamed_tools: tuple[RenamedTool, ...]
    _claims: tuple[_NameClaims, ...]
    """Kept, so that the assigner finds them when it names a set with the same servers."""

    def find(self, name: str) -> ToolAddress | None:
        """Return the tool with an exposed name, None if there is none."""
        return self.targets.get(name)

    def exposed_name(self, server_id: str, tool: str) -> str | None:
        """Return the exposed name of a tool, None if it has none."""
        return self._name_by_target.get(ToolAddress(server_id, tool))

    @cached_property
    def _name_by_target(self) -> Mapping[ToolAddress, str]:
        # On first use, because only endpoints of a single server need it.
        return {target: name for name, target in self.targets.items()}


class NameAssigner:
    """Assigns exposed names to sets of tools. The same set gets the same names in any order and process."""

    def __init__(
        self, templates: NameTemplates | None = None, reserved: Collection[str] = RESERVED_NAMES
    ) -> None:
        self._templates = templates or NameTemplates()
        self._reserved = frozenset(reserved)
        # Weak: principals with equal servers share their names, and the sets that exist only for a moment,
        # while many servers are listed one after the other, are freed at once.
        self._claims: WeakValueDictionary[ServerToolNames, _NameClaims] = WeakValueDictionary()
        self._names: WeakValueDictionary[tuple[ServerToolNames, ...], ExposedNames] = WeakValueDictionary()

    def names(self, groups: Iterable[ServerToolNames]) -> ExposedNames:
        """Return a unique name for every tool of every group. Groups with the same id are one."""
        merged: dict[str, ServerToolNames] = {}
        for group in groups:
            known = merged.get(group.id)
            merged[group.id] = group if known is None else replace(known, tools=known.tools + group.tools)
        key = tuple(merged[group_id] for group_id in sorted(merged))
        names = self._names.get(key)
        if names is None:
            names = self._names[key] = self._assign_names(key)
        return names

    def prefix(self, label: str, *, instance: bool = False) -> str:
        """Return the common prefix of the names of a server's or instance's tools, apart from renamed ones.

        ``label`` is the server's id or the instance's slug.
        """
        return _template_affixes(self._templates, _DISALLOWED_CHARACTER.sub("_", label), instance)[0]

    def _assign_names(self, groups: tuple[ServerToolNames, ...]) -> ExposedNames:
        by_server = tuple(map(self._claim_names, groups))
        claims = _NameClaims.join(by_server)
        names, attempts = _resolve_conflicts(claims, self._reserved)
        order = sorted(range(len(names)), key=names.__getitem__)
        return ExposedNames(
            targets=MappingProxyType({names[index]: claims.targets[index] for index in order}),
            renamed_tools=_list_renamed_tools(claims, names, attempts, self._reserved),
            _claims=by_server,
        )

    def _claim_names(self, group: ServerToolNames) -> _NameClaims:
        claims = self._claims.get(group)
        if claims is None:
            claims = self._claims[group] = _NameClaims.of_group(group, self._templates)
        return claims


@dataclass(frozen=True, eq=False)
class _NameClaims:
    """Names that the templates build for the tools of one server, or of several.

    They are parallel lists with one item per tool, which is faster than a list of objects for thousands of
    tools.
    """

    targets: list[ToolAddress]
    wanted: list[str]
    exact: list[bool]
    """Whether no character had to be replaced."""
    native: list[bool]
    """Whether the tool may use a reserved name."""

    @classmethod
    def join(cls, by_server: Sequence[_NameClaims]) -> _NameClaims:
        return cls(
            [each for claims in by_server for each in claims.targets],
            [each for claims in by_server for each in claims.wanted],
            [each for claims in by_server for each in claims.exact],
            [each for claims in by_server for each in claims.native],
        )

    @classmethod
    def of_group(cls, group: ServerToolNames, templates: NameTemplates) -> _NameClaims:
        label = _DISALLOWED_CHARACTER.sub("_", group.label)
        prefix, suffix = ("", "") if group.native else _template_affixes(templates, label, group.instance)
        tools = list(dict.fromkeys(group.tools))
        cleaned = [_DISALLOWED_CHARACTER.sub("_", tool) for tool in tools]
        return cls(
            [ToolAddress(group.id, tool) for tool in tools],
            [f"{prefix}{name}{suffix}" for name in cleaned],
            [name == tool and label == group.label for name, tool in zip(cleaned, tools, strict=True)],
            [group.native] * len(tools),
        )


def _template_affixes(templates: NameTemplates, label: str, instance: bool) -> tuple[str, str]:
    """Return the parts of an exposed name before and after the tool's name."""
    template = templates.instance if instance else templates.server
    filled = template.replace("{server}", "{slug}").replace("{slug}", label)
    prefix, _, suffix = filled.partition("{tool}")
    return _DISALLOWED_CHARACTER.sub("_", prefix), _DISALLOWED_CHARACTER.sub("_", suffix)


def _resolve_conflicts(claims: _NameClaims, reserved: frozenset[str]) -> tuple[list[str], list[int]]:
    """Return the final names, and the number of the attempt that produced each of them.

    Each round examines all names at once and gives all holders of a contested name a longer hash. The result
    therefore does not depend on the order of the tools. The rounds end, since hashes only grow and the
    longest one is always kept.
    """
    names = list(claims.wanted)
    attempts = [0] * len(names)
    contested = [index for index, name in enumerate(names) if not _is_valid_length(name)]
    while True:
        for index in contested:
            attempts[index] += 1
            names[index] = _name_with_hash(claims.wanted[index], claims.targets[index], attempts[index])
        contested = _find_contested(claims, names, attempts, reserved)
        if not contested:
            return names, attempts


def _find_contested(
    claims: _NameClaims, names: list[str], attempts: list[int], reserved: frozenset[str]
) -> list[int]:
    # The common case, without building the dictionary below.
    if len(set(names)) == len(names) and reserved.isdisjoint(names):
        return []
    holders: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        holders.setdefault(name, []).append(index)
    contested: list[int] = []
    for name, indexes in holders.items():
        if name in reserved:
            contested += [index for index in indexes if not claims.native[index]]
        elif len(indexes) > 1:
            keeper = _pick_keeper(indexes, claims, attempts)
            contested += [index for index in indexes if index != keeper]
    return contested


def _pick_keeper(indexes: list[int], claims: _NameClaims, attempts: list[int]) -> int | None:
    """Return the claimant that keeps the name: the only one whose name needed no replaced characters, if any.

    No claimant keeps a name that equals another tool's hashed name, because only a server that tries to
    impersonate that tool publishes such a name. The exception is the longest hash, which cannot grow.
    """
    for index in indexes:
        if attempts[index] == _LAST_ATTEMPT:
            return index
    if any(attempts[index] for index in indexes):
        return None
    exact = [index for index in indexes if claims.exact[index]]
    return exact[0] if len(exact) == 1 else None


def _name_with_hash(wanted: str, target: ToolAddress, attempt: int) -> str:
    digits = _HASH_DIGITS_BY_ATTEMPT[attempt]
    # Separated by NUL, because ("a/b", "c") and ("a", "b/c") have the same canonical id.
    identity = f"{target.server_id}\0{target.tool}".encode("utf-8", "surrogatepass")
    digest = sha256(identity).hexdigest()[:digits]
    max_chars = MAX_EXPOSED_NAME_CHARS - digits - 1
    if len(wanted) <= max_chars:
        return f"{wanted}_{digest}"
    # Keep both ends: the start names the server and the end often distinguishes similar tools.
    head = max_chars // 2
    tail = max_chars - 1 - head
    return f"{wanted[:head]}_{digest}" + (f"_{wanted[-tail:]}" if tail > 0 else "")


def _list_renamed_tools(
    claims: _NameClaims, names: list[str], attempts: list[int], reserved: frozenset[str]
) -> tuple[RenamedTool, ...]:
    hashed = [index for index, attempt in enumerate(attempts) if attempt]
    if not hashed:
        return ()
    contested = {claims.wanted[index] for index in hashed}
    claimants: dict[str, list[ToolAddress]] = {}
    for target, wanted in sorted(zip(claims.targets, claims.wanted, strict=True)):
        if wanted in contested:
            claimants.setdefault(wanted, []).append(target)
    renamed: list[RenamedTool] = []
    for index in hashed:
        target, wanted = claims.targets[index], claims.wanted[index]
        others = (rival for rival in claimants[wanted] if rival != target)
        rivals = tuple(islice(others, _MAX_RIVALS_SHOWN))
        if wanted in reserved:
            reason = RenameReason.RESERVED
        else:
            reason = RenameReason.COLLISION if _is_valid_length(wanted) else RenameReason.LENGTH
        renamed.append(RenamedTool(target, wanted, names[index], reason, rivals))
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
        return [Problem(f"'{text}' has an unknown placeholder", path=path, hint=hint)]
    return []
