"""The servers whose tools are not known yet, told to a model in one short line."""

from __future__ import annotations

from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.errors import ServerError
from toolyard.types.call import Caller
from toolyard.types.server import Trust

__all__ = ["UnlistedServers"]

_MAX_NAMED_SERVERS = 5
_MAX_CAUSE_CHARS = 80


class UnlistedServers:
    """Says who is missing in what a caller is told, and why, so that a model knows to ask again."""

    def __init__(self, tool_directory: ToolDirectory, call_path: CallPath) -> None:
        self._tool_directory = tool_directory
        self._call_path = call_path

    def why(self, server_id: str, caller: Caller) -> str | None:
        """Why the tools of a server are not known; None where they are, or it is not there for the caller."""
        return self._find_reasons(caller, server_id).get(server_id)

    def line(self, caller: Caller) -> str | None:
        """All of them, the first few by their names; None where nobody is missing."""
        reasons = self._find_reasons(caller)
        if not reasons:
            return None
        named = [f"{server_id} ({reasons[server_id]})" for server_id in sorted(reasons)[:_MAX_NAMED_SERVERS]]
        if len(reasons) > _MAX_NAMED_SERVERS:
            named.append(f"{len(reasons) - _MAX_NAMED_SERVERS:,} more")
        return f"{', '.join(named)}; asking again may find their tools"

    def _find_reasons(self, caller: Caller, only: str | None = None) -> dict[str, str]:
        return {
            server_id: self._describe_reason(server_id, failure, caller)
            for server_id, failure in self._tool_directory.missing_servers(caller.principal).items()
            if only in (None, server_id) and self._call_path.can_reach(server_id, caller)
        }

    def _describe_reason(self, server_id: str, failure: ServerError | None, caller: Caller) -> str:
        if failure is None:
            return "has not answered yet"
        if self._call_path.trust(server_id, caller) is not Trust.TRUSTED:
            # The reason may be in the server's own words.
            return "cannot be listed"
        self._call_path.redact_error(failure)
        cause = " ".join(failure.cause.split())
        return cause if len(cause) <= _MAX_CAUSE_CHARS else f"{cause[: _MAX_CAUSE_CHARS - 1]}…"
