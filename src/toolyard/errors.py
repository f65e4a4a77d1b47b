"""Every error that Toolyard raises to a caller, in one place.

    ToolyardError                    what happened; ``hint`` says what to do next
    ├── ConfigError                  a configuration that cannot be used; all problems at once
    ├── AgentsError                  an AGENTS.md that cannot be used; all problems at once
    ├── ToolRefused                  refused by policy, or no such tool: the same words for both
    │   └── ApprovalNeeded           a call that somebody must say yes to first (``approval``, ``link``)
    └── ServerError                  about one server, which ``server`` names
        ├── Unreachable              nothing was executed: not started, refused, exited, closed
        │   ├── Throttled            429 or 503: come back later (``retry_after``)
        │   └── SessionLost          the server forgot our session before it ran anything
        ├── SignInNeeded             401 or 403: credentials are missing, expired or too small
        ├── BadAnswer                an answer that is not MCP: HTML, wrong shape, too long
        │   └── HttpStatus           an HTTP status that says no (``status``, ``body``)
        ├── RpcError                 the server answered with a JSON-RPC error (``code``, ``data``)
        ├── CallTimeout              neither answer nor progress in time, or over the absolute cap
        └── OutcomeUnknown           sent, but the connection ended before the answer

``exit_code`` is what the command line ends with. ``kind`` is a stable word for what happened to a server, for
programs; ``toolyard.auth.errors`` has more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "AgentsError",
    "ApprovalNeeded",
    "BadAnswer",
    "CallTimeout",
    "ConfigError",
    "HttpStatus",
    "OutcomeUnknown",
    "Problem",
    "RpcError",
    "ServerError",
    "SessionLost",
    "SignInNeeded",
    "Throttled",
    "ToolRefused",
    "ToolyardError",
    "Unreachable",
]


class ToolyardError(Exception):
    """The root. ``cause`` is one sentence; ``hint``, where there is one, says what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, *, hint: str | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.cause}\nhint: {self.hint}" if self.hint else self.cause


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file: where, what was found, what was expected, what to do."""

    message: str
    file: str | None = None
    line: int | None = None
    path: str = ""
    hint: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        head = ": ".join(part for part in (place, self.path, self.message) if part)
        return f"{head}\n  hint: {self.hint}" if self.hint else head


class _ProblemsError(ToolyardError):
    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigError(_ProblemsError):
    """The configuration cannot be used. ``problems`` holds all of them, not the first."""


class AgentsError(_ProblemsError):
    """An AGENTS.md file cannot be used. ``problems`` holds all of them, not the first."""


class ToolRefused(ToolyardError):
    """Policy refuses the tool, or there is none of that name. A caller cannot tell which."""

    exit_code = 4


class ApprovalNeeded(ToolRefused):
    """A call that needs somebody's yes. ``approval`` is the id under which it waits for that, ``link`` the
    page where it is given; None where there is none. Repeated after the yes, the call goes through."""

    def __init__(
        self, cause: str, *, approval: str, link: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(cause, hint=hint)
        self.approval = approval
        self.link = link


class ServerError(ToolyardError):
    """A failure of one server. The others are not touched by it."""

    exit_code = 3
    kind: ClassVar[str] = "failed"

    def __init__(self, cause: str, *, server: str = "", hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.server = server

    def __str__(self) -> str:
        text = super().__str__()
        return f"server '{self.server}': {text}" if self.server else text


class Unreachable(ServerError):
    """The request was not executed: the server did not start, refused, exited or was closed."""

    kind = "unreachable"


class Throttled(Unreachable):
    """The server asks us to come back later."""

    kind = "throttled"

    def __init__(self, cause: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.retry_after = retry_after


class SessionLost(Unreachable):
    """The server no longer knows our session; it executed nothing."""

    kind = "session_lost"


class SignInNeeded(ServerError):
    """The server wants credentials, or better ones. ``challenge`` is its WWW-Authenticate header."""

    exit_code = 5
    kind = "sign_in_needed"

    def __init__(
        self, cause: str, *, status: int = 401, challenge: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(cause, hint=hint)
        self.status = status
        self.challenge = challenge


class BadAnswer(ServerError):
    """The server answered something that is not MCP."""

    kind = "bad_answer"


class HttpStatus(BadAnswer):
    """An HTTP status that says no, with what the server said about it."""

    kind = "http_status"

    def __init__(
        self,
        cause: str,
        *,
        status: int,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(cause, hint=hint)
        self.status = status
        self.body = body
        self.headers = dict(headers or {})


class RpcError(ServerError):
    """The server understood the request and answered with a JSON-RPC error."""

    exit_code = 1
    kind = "rpc_error"

    def __init__(self, code: int, message: str, data: object = None, *, hint: str | None = None) -> None:
        super().__init__(f"{message} (code {code})", hint=hint)
        self.code = code
        self.message = message
        self.data = data


class CallTimeout(ServerError):
    """No answer in time. The server was told to stop."""

    exit_code = 6
    kind = "timeout"


class OutcomeUnknown(ServerError):
    """The request was sent and may have been executed; the connection ended before the answer."""

    exit_code = 6
    kind = "outcome_unknown"
