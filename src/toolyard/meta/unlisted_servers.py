"""The servers whose tools are not known yet, told to a model in one short line."""

from __future__ import annotations

from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import Rosters
from toolyard.errors import ServerError
from toolyard.types.call import Caller
from toolyard.types.server import Trust

__all__ = ["Missing"]

_NAMED = 5
_CAUSE = 80


class Missing:
    """Says who is missing in what a caller is told, and why, so that a model knows to ask again."""

    def __init__(self, rosters: Rosters, calls: CallPath) -> None:
        self._rosters = rosters
        self._calls = calls

    def why(self, server_id: str, caller: Caller) -> str | None:
        """Why the tools of a server are not known; None where they are, or it is not there for the caller."""
        return self._reasons(caller, server_id).get(server_id)

    def line(self, caller: Caller) -> str | None:
        """All of them, the first few by their names; None where nobody is missing."""
        reasons = self._reasons(caller)
        if not reasons:
            return None
        named = [f"{server_id} ({reasons[server_id]})" for server_id in sorted(reasons)[:_NAMED]]
        if len(reasons) > _NAMED:
            named.append(f"{len(reasons) - _NAMED:,} more")
        return f"{', '.join(named)}; asking again may find their tools"

    def _reasons(self, caller: Caller, only: str | None = None) -> dict[str, str]:
        return {
            server_id: self._reason(server_id, failure, caller)
            for server_id, failure in self._rosters.missing(caller.principal).items()
            if only in (None, server_id) and self._calls.reaches(server_id, caller)
        }

    def _reason(self, server_id: str, failure: ServerError | None, caller: Caller) -> str:
        if failure is None:
            return "has not answered yet"
        if self._calls.trust(server_id, caller) is not Trust.TRUSTED:
            # The reason may be in the server's own words.
            return "cannot be listed"
        self._calls.hush(failure)
        cause = " ".join(failure.cause.split())
        return cause if len(cause) <= _CAUSE else f"{cause[: _CAUSE - 1]}…"
