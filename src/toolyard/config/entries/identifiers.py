"""Syntax of the ids of servers and bundles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from hashlib import sha256

__all__ = ["MAX_ID_CHARACTERS", "assign_valid_ids", "id_fault", "sanitize_id"]

MAX_ID_CHARACTERS = 64
# C0 and C1 controls, line and paragraph separators, and bidirectional overrides and isolates.
_CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_CONTROL_CHARACTER = re.compile(f"[{_CONTROLS}]")
_INVALID_CHARACTERS = re.compile(f"[/{_CONTROLS}]+")


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


def sanitize_id(name: str) -> str:
    """Return the valid id for a server's name in a file of another client."""
    return _INVALID_CHARACTERS.sub("-", name.lstrip("@")).strip("-")[:MAX_ID_CHARACTERS] or "server"


def assign_valid_ids(names: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return a valid id for each name; valid names stay as they are.

    Names that would get the same id have a hash of the name appended, all of them: the order of the entries
    must not decide which server gets the id, and with it the approvals and sign-ins stored under it.
    """
    ids = {name: name if id_fault(name) is None else sanitize_id(name) for name in names}
    uses = Counter([*ids.values(), *taken])
    for name, server_id in ids.items():
        if name != server_id and uses[server_id] > 1:
            suffix = f"-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
            ids[name] = server_id[: MAX_ID_CHARACTERS - len(suffix)] + suffix
    return ids
