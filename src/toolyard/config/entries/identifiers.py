"""Syntax of the ids of servers and bundles."""

from __future__ import annotations

import re

__all__ = ["MAX_ID_CHARACTERS", "id_fault"]

MAX_ID_CHARACTERS = 64
# C0 and C1 controls, line and paragraph separators, and bidirectional overrides and isolates.
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def id_fault(identifier: str) -> str | None:
    """Return why a string is not a valid id.

    Canonical ids of tools are ``server/tool`` and ``@owner/slug/tool``, so a slash or a leading ``@`` could
    give two tools the same id. A control character could manipulate the terminal that displays the id.
    """
    if not identifier:
        return "an id must not be empty"
    if len(identifier) > MAX_ID_CHARACTERS:
        return f"an id has at most {MAX_ID_CHARACTERS} characters, this one has {len(identifier)}"
    if "/" in identifier:
        return "an id must not contain '/'"
    if identifier.startswith("@"):
        return "an id must not begin with '@'"
    if _CONTROL_CHARACTER.search(identifier):
        return "an id must not contain control characters"
    return None
