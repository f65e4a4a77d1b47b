"""Notices of commands: disabled and failed servers, stale listings, quarantined tools."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolyard.cli.output.console import (
    Notice,
    format_age,
    format_count,
    format_problem,
    one_line,
    problem_notice,
)
from toolyard.config.file_io import read_regular_file, write_private_file
from toolyard.errors import ConfigError, Problem, ServerError, ToolRefused
from toolyard.policy import build_hidden_refusal
from toolyard.policy.rules import DEFINITION_RULE_TITLE, WRITE_RULE_TITLE
from toolyard.types.call import HiddenTool, RuleOutcome, summarize_hiding_rules
from toolyard.types.server import Configuration, Server, Trust

if TYPE_CHECKING:
    from toolyard.catalog.lock.combined_locks import CombinedLocks
    from toolyard.catalog.tool_listing import ToolListing
    from toolyard.library import Toolyard

__all__ = [
    "LISTING_HINT",
    "UNTRUSTED_WRITE_HINT",
    "NoticeMemory",
    "add_refusal_hint",
    "agent_problem_notices",
    "clean_server_text",
    "configuration_notices",
    "describe_hidden_tools",
    "explain_refusal",
    "failure_notices",
    "find_disabled_server",
    "find_servers_without_tools",
    "find_unaccepted_tools",
    "hidden_tools_notices",
    "no_servers_notices",
    "quarantined_tools_notices",
    "servers_without_tools_notices",
    "stale_listing_notices",
    "unaccepted_tools_notices",
    "unapproved_file_notices",
]

_MAX_NAMED_TOOLS = 5
LISTING_HINT = "`toolyard servers` lists the tools, or shows why it cannot"
UNTRUSTED_WRITE_HINT = (
    "tools of an untrusted server count as write tools: set write_tools to 'ask' or 'allow' to use them"
)


def clean_server_text(text: str, server: Server | None) -> str:
    """Return a server's text on one line, without its secrets."""
    from toolyard.clients.secret_redaction import find_secrets  # loaded with the yard
    from toolyard.results.redaction import redact_secrets

    return one_line(redact_secrets(text, find_secrets(server)) if server is not None else text)


def no_servers_notices(configuration: Configuration, data_dir: Path) -> Iterator[Notice]:
    """Report that no server is configured."""
    if not configuration.servers:
        place = configuration.file or str(data_dir / "mcp.json")
        yield Notice("no servers are configured", f"add them to {place}, or run `toolyard import`")


def unapproved_file_notices(configuration: Configuration) -> Iterator[Notice]:
    """Report the configuration file that needs approval."""
    for hint in configuration.hints:
        if hint.file == configuration.waiting and hint.line is None:
            yield Notice(format_problem(hint), hint.hint)


def configuration_notices(configuration: Configuration) -> Iterator[Notice]:
    """Report the file that needs approval, invalid entries, and the servers that are disabled against their
    entries, with reasons."""
    yield from unapproved_file_notices(configuration)
    for server in configuration.servers.values():
        yield from map(problem_notice, server.problems)
    for server in configuration.servers.values():
        reason = None if server.problems else server.disabled_reason
        # Servers of an unapproved file share one reason, which has just been printed.
        if reason is not None and server.id not in configuration.unapproved:
            yield Notice(f"server '{server.id}' is disabled: {reason}")


def failure_notices(
    failures: Mapping[str, ServerError], configuration: Configuration, memory: NoticeMemory | None = None
) -> Iterator[Notice]:
    """Report the servers that could not be listed: those in ``memory`` by their names alone."""
    servers = configuration.servers
    texts = {
        server_id: f"server '{server_id}': {clean_server_text(one.cause, servers.get(server_id))}"
        for server_id, one in failures.items()
    }
    new = texts.values() if memory is None else memory.take_new("failures", list(texts.values()))
    known = [server_id for server_id, text in texts.items() if text not in new]
    for server_id, text in texts.items():
        if server_id not in known:
            yield Notice(text, failures[server_id].hint, is_error=True)
    if known:
        yield Notice(f"still failing: {', '.join(known)}", "`toolyard servers` shows the causes")


def stale_listing_notices(tool_listing: ToolListing, server: str | None = None) -> Iterator[Notice]:
    """Report servers whose tools come from a stale listing."""
    old = {
        server_id: catalogue.age
        for server_id, catalogue in tool_listing.catalogues.items()
        if catalogue.stale
        and catalogue.age >= 1
        and server_id not in tool_listing.failures
        and server in (None, server_id)
    }
    if old:
        names = ", ".join(f"{server_id} {format_age(age)}" for server_id, age in old.items())
        yield Notice(f"listed from the cache: {names}", "use --fresh to list again")


def quarantined_tools_notices(
    tool_listing: ToolListing, server: str | None = None, memory: NoticeMemory | None = None
) -> Iterator[Notice]:
    """Report the tools that cannot be used, one line each, except those in ``memory``."""
    texts = [str(one) for one in tool_listing.quarantined() if server in (None, one.server_id)]
    for text in texts if memory is None else memory.take_new("quarantined", texts):
        yield Notice(text)


def unaccepted_tools_notices(
    tool_listing: ToolListing, locks: CombinedLocks, memory: NoticeMemory
) -> Iterator[Notice]:
    """Report the tools that a lock quarantines, once."""
    if locks.file is not None and locks.file.problem is not None:
        yield from map(problem_notice, locks.file.problem.problems)
        return
    if locks.first_use is not None:
        while locks.first_use.notices:
            yield Notice(one_line(locks.first_use.notices.popleft()), "see the setting pin_tools")
    notice = find_unaccepted_tools(tool_listing, locks)
    if notice is not None and memory.take_new("unaccepted", [notice.text]):
        yield notice


def find_unaccepted_tools(tool_listing: ToolListing, locks: CombinedLocks) -> Notice | None:
    """Return a notice of the tools that a valid lock quarantines."""
    lock = locks.file
    if lock is not None and lock.problem is not None:
        return None
    aside = [
        f"{server_id}/{tool}"
        for server_id, catalogue in tool_listing.catalogues.items()
        for tool in locks.quarantine_reasons(catalogue.contents)
    ]
    if not aside:
        return None
    shown = ", ".join(aside[:_MAX_NAMED_TOOLS]) + (", …" if len(aside) > _MAX_NAMED_TOOLS else "")
    hint = "review with `toolyard lock --diff`, accept with `toolyard lock --accept NAME` or --all"
    where = f"accepted in {lock.path}" if lock is not None and lock.exists else "first listed"
    verb = "differs" if len(aside) == 1 else "differ"
    return Notice(f"{format_count(len(aside), 'tool')} {verb} from the definitions {where}: {shown}", hint)


def hidden_tools_notices(hidden: Sequence[HiddenTool], *, are_shown: bool = False) -> Iterator[Notice]:
    """Report how many tools are hidden, by which rules."""
    if hidden and not are_shown:
        verb, pronoun = ("is", "it") if len(hidden) == 1 else ("are", "them")
        rules = summarize_hiding_rules(each.rule for each in hidden)
        yield Notice(f"{len(hidden)} more {verb} hidden ({rules}): --all shows {pronoun}")


def agent_problem_notices(problems: Iterable[Problem]) -> Iterator[Notice]:
    """Report what is wrong with the tools of an agent. It can be used without them."""
    for problem in problems:
        yield Notice(format_problem(problem), problem.hint)


def find_servers_without_tools(
    tool_listing: ToolListing, hidden: Sequence[HiddenTool], configuration: Configuration
) -> Iterator[tuple[Server, str, str]]:
    """Yield each server whose tools are all hidden, with a sentence and a hint."""
    for server_id, catalogue in tool_listing.catalogues.items():
        rules = [each.rule for each in hidden if each.server == server_id]
        server = configuration.servers.get(server_id)
        if server is not None and rules and len(rules) >= len(catalogue.definitions):
            yield server, *describe_hidden_tools(server_id, server.trust, rules)


def describe_hidden_tools(server: str, trust: Trust, rules: Sequence[str]) -> tuple[str, str]:
    """Return a sentence and a hint about a server whose tools are all hidden, by these rules."""
    hint = f"`toolyard tools --server {server} --all` shows the reasons"
    if set(rules) == {WRITE_RULE_TITLE}:
        hint = "set write_tools to 'ask' or 'allow' to use them"
        if trust is Trust.UNTRUSTED:
            hint = UNTRUSTED_WRITE_HINT
    count = format_count(len(rules), "tool")
    return f"offers nothing: {count} hidden ({summarize_hiding_rules(rules)})", hint


def servers_without_tools_notices(
    tool_listing: ToolListing, hidden: Sequence[HiddenTool], configuration: Configuration
) -> Iterator[Notice]:
    """Report the servers whose tools are all hidden."""
    for server, text, hint in find_servers_without_tools(tool_listing, hidden, configuration):
        yield Notice(f"server '{server.id}' {text}", hint)


def find_disabled_server(tool_name: str, configuration: Configuration) -> Server | None:
    """Return the disabled server that a tool of this name would belong to, judging by its prefix."""
    for server in configuration.servers.values():
        if not server.enabled and tool_name.startswith((f"{server.id}/", f"{server.id}_")):
            return server
    return None


def explain_refusal(
    error: ToolRefused, tool_name: str, yard: Toolyard, agent: str | None, bundles: tuple[str, ...]
) -> ToolRefused:
    """Return the refusal of a call with the rule that hides the tool, and a hint for the operator."""
    try:
        decisive = yard.why(tool_name, agent=agent, bundles=bundles).decisive
    except ToolRefused:
        hint = f"`toolyard why {tool_name}` explains, `toolyard tools` lists all tools"
        return add_refusal_hint(error, tool_name, yard.configuration, hint)
    in_quarantine = error.rule == DEFINITION_RULE_TITLE
    if decisive is None or decisive.outcome is RuleOutcome.ASK or in_quarantine:
        # Nobody approved it, or it is in quarantine, which has a hint of its own.
        return error
    options = "" if agent is None else f" --agent {agent}"
    options += "".join(f" --bundle {bundle}" for bundle in bundles)
    return build_hidden_refusal(tool_name, decisive.rule, decisive.reason, options)


def add_refusal_hint(
    error: ToolRefused, tool_name: str, configuration: Configuration, hint: str
) -> ToolRefused:
    """Return the refusal of an unknown name with ``hint``, unless there is a better one for the operator."""
    off = find_disabled_server(tool_name, configuration)
    if off is not None:
        reason = off.disabled_reason or "turned off in its entry"
        return ToolRefused(error.cause, hint=f"server '{off.id}' is disabled: {reason}")
    if error.suggestion is not None or error.rule is not None:
        return error
    return ToolRefused(error.cause, hint=hint)


_FILE_NAME = "notices.json"
_MAX_KINDS = 100


class NoticeMemory:
    """Hashes of the notices that the last command showed for a configuration file.

    Its file is only a hint: if it is lost, a notice appears once more.
    """

    def __init__(self, data_dir: Path, configuration_file: str | None) -> None:
        self._path = data_dir / _FILE_NAME
        self._configuration_file = configuration_file or ""

    def contains(self, kind: str, notice: str) -> bool:
        """Return whether the last command showed a notice."""
        return _hash(notice) in self._load().get(self._key(kind), ())

    def _key(self, kind: str) -> str:
        return _hash(f"{kind} {self._configuration_file}")

    def take_new(self, kind: str, notices: Sequence[str]) -> list[str]:
        """Return the notices that were not shown before, and remember exactly these: one that ends and comes
        back is new again."""
        key, hashes = self._key(kind), [_hash(text) for text in notices]
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
