"""Input for a registry server from an entry of a configuration file, such as one that a person pasted.

Credentials never become part of it: each person enters their own. Other values that a registry server cannot
have are left out, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolyard.config.secret_replacement import replace_secrets
from toolyard.config.sources.json_document import JsonValue
from toolyard.config.value_checks import find_path_tokens
from toolyard.errors import Problem
from toolyard.registry.errors import Invalid
from toolyard.types.registry import ChoiceDraft, ServerDraft
from toolyard.types.server import URL_TRANSPORT_LABELS, Trust

__all__ = ["EntryDraft", "build_entry_draft"]

_SECRET_PARAMETER_PATTERN = re.compile(r"(?P<before>[?&])(?P<name>[^=&#]+)=[^&#]*\$\{[^&#]*(?P<after>&?)")
_COPIED_KEYS = frozenset({"type", "url", "headers", "oauth", "trust", "allowTools", "denyTools"})
_IGNORED_KEYS = frozenset({"label", "description", "enabled", "disabled"})


@dataclass(frozen=True, slots=True)
class EntryDraft:
    """A server without a sign-in method if the entry has none, and notes about what was left out."""

    draft: ServerDraft
    notes: tuple[str, ...] = ()


def build_entry_draft(name: str, entry: Mapping[str, JsonValue], description: str = "") -> EntryDraft:
    """Return the input for an entry with an address. Raises Invalid for a program or a variable address."""
    if not isinstance(entry.get("url"), str):
        hint = "run `toolyard add` on the machine that runs Toolyard, and paste the entry there"
        raise Invalid([Problem("the entry starts a program, or has no URL", path="entry", hint=hint)])
    replaced = replace_secrets(name, entry, {})
    value = replaced.value
    url, parameter = _take_secret_parameter(str(value["url"]))
    if next(find_path_tokens(str(entry["url"])), None) is not None:
        hint = "everyone sees the URL of a registry server; an admin can enter it in the form all the same"
        raise Invalid([Problem("the URL has a token in its path", path="entry", hint=hint)])
    if "${" in url:
        raise Invalid([Problem("the URL has a variable or a password", path="entry", hint="leave it out")])
    notes: list[str] = []
    choices = [ChoiceDraft("header", place="query", key=parameter)] if parameter else []
    choices += _read_headers(value.get("headers"), notes)
    if len(choices) > 1:
        others = ", ".join(str(each.key) for each in choices[1:])
        notes.append(f"Only one key can be sent for each person. Left out: {others}.")
    if replaced.variables:
        notes.append("The key in the entry is not stored. Each person enters their own.")
    oauth = value.get("oauth")
    if not choices and isinstance(oauth, dict) and isinstance(oauth.get("clientId"), str):
        choices = [
            ChoiceDraft(
                "oauth",
                registration="entered",
                client_id=str(oauth["clientId"]),
                scopes=_read_words(oauth.get("scopes")),
            )
        ]
        if "clientSecret" in oauth:
            notes.append("The client secret in the entry is not stored. Enter it in the form.")
    unknown = sorted(value.keys() - _COPIED_KEYS - _IGNORED_KEYS)
    if unknown:
        notes.append(f"Registry servers have no {', '.join(unknown)}; left out.")
    kind, trust = value.get("type"), value.get("trust")
    draft = ServerDraft(
        name,
        url,
        transport=kind if isinstance(kind, str) and kind in URL_TRANSPORT_LABELS else "http",
        trust=trust if isinstance(trust, str) else Trust.TRUSTED.value,
        description=description,
        allow_tools=_read_words(value.get("allowTools")) or None,
        deny_tools=_read_words(value.get("denyTools")),
        choices=tuple(choices[:1]),
    )
    return EntryDraft(draft, tuple(notes))


def _take_secret_parameter(url: str) -> tuple[str, str | None]:
    """Return the address without the query parameter whose value is a secret, and its name."""
    found = _SECRET_PARAMETER_PATTERN.search(url)
    if found is None:
        return url, None
    kept = found["before"] if found["after"] else ""
    return url[: found.start()] + kept + url[found.end() :], found["name"]


def _read_headers(headers: JsonValue, notes: list[str]) -> Iterator[ChoiceDraft]:
    for name, value in (headers if isinstance(headers, dict) else {}).items():
        if isinstance(value, str) and "${" in value:
            yield ChoiceDraft("header", key=name)
        else:
            notes.append(f"The header {name} is left out: registry servers send keys only.")


def _read_words(value: JsonValue) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    return tuple(each for each in cast("list[Any]", words or []) if isinstance(each, str))
