"""Errors that the call path and the store raise, and the tree of all error classes of Toolyard.

This module defines the following classes::

    ToolyardError                    base class; ``cause`` is one sentence, ``hint`` the next step
    ├── ConfigError                  invalid configuration; ``problems`` lists all of them
    │   └── EditRefused (config)     a client's file cannot be edited without losing something in it
    ├── AgentsError                  invalid AGENTS.md; ``problems`` lists all of them
    ├── ToolRefused                  refused by policy (``rule``), or unknown tool
    │   └── ApprovalNeeded           the call needs an approval first (``approval``, ``link``)
    ├── LimitReached                 a limit of the settings is reached; ``hint`` names the setting
    │   └── TooManyStreams           too many open event streams (``retry_after``)
    ├── NameTaken                    another user has this name
    ├── Taken                        the name of a server or slug of an instance is in use (``field``)
    ├── NotFound                     it does not exist, or belongs to another user
    ├── Outdated                     changed since it was read (``current``)
    ├── ChatError                    base class of errors of chats (further ones: toolyard.agents.chat.errors)
    │   ├── NoSuchChat               a chat, approval or question does not exist for this user
    │   ├── ChatQuotaExceeded        the storage quota for chats is used up
    │   ├── AttachmentRefused        a file cannot be attached to a message, or an attachment is unknown
    │   │   └── AttachmentTooLarge   the file has too many bytes
    │   ├── ChatChanged              another request changed the branch (``turn``, ``text``)
    │   └── NotHeld                  this process lost its claim on the turn
    └── ServerError                  failure of one server, named by ``server``
        ├── Unreachable              nothing was executed: not started, refused, exited, closed
        │   ├── PrivateAddress       the server may not be at a private address, and is
        │   ├── Throttled            HTTP 429 or 503: retry later (``retry_after``)
        │   ├── SessionLost          the server dropped our session before it executed anything
        │   └── AuthUnavailable (auth)   the authorization server could not be reached
        ├── SignInNeeded             HTTP 401 or 403: credentials missing, expired or insufficient
        │   └── AuthError (auth)     OAuth sign-in is required or failed; its classes are below
        ├── BadAnswer                a response that is not MCP: HTML, wrong shape, too long
        │   └── HttpStatus           an HTTP error status (``status``, ``body``, ``headers``)
        ├── RpcError                 a JSON-RPC error response (``code``, ``message``, ``data``)
        ├── CallTimeout              no response or progress in time, or over the absolute limit
        └── OutcomeUnknown           sent, but the connection ended before the response

Other packages define their own classes beside the code that raises them::

    ToolyardError
    ├── SignInNeeded ─ AuthError                    toolyard.auth.errors
    │   ├── NeverSignedIn                           no sign-in for this server yet
    │   ├── SignInEnded                             expired or revoked, and cannot be refreshed
    │   ├── ScopeNeeded                             the request needs further scopes
    │   ├── DiscoveryFailed                         no usable authorization metadata
    │   │   ├── ResourceMismatch                    metadata of another protected resource
    │   │   ├── IssuerMismatch                      metadata of another issuer
    │   │   └── AddressNotAllowed                   a private, unencrypted or invalid address
    │   ├── PkceMissing                             PKCE with S256 is not supported
    │   ├── RegistrationFailed                      no client id at the authorization server
    │   │   ├── WrongAuthorizationServer            the client id belongs to another issuer
    │   │   └── IssuerUnconfirmed                   credentials entered, issuer not confirmed
    │   ├── SignInNotNeeded                         the server answers without a sign-in
    │   ├── AnswerRejected                          unknown state or wrong issuer in the redirect
    │   ├── AuthorizationDenied                     error in the redirect (``code``)
    │   ├── TokenRefused                            error of the token endpoint (``code``)
    │   │   └── ClientForgotten                     the registered client is no longer known there
    │   └── TooManyAttempts                         still refused after repeated sign-ins
    ├── Outdated                                    toolyard.catalog.lock.errors
    ├── LockBroken                                    (the tools changed, mcp.lock is damaged or
    ├── LockUnwritable                                read-only, pinned definitions unavailable)
    ├── PinsUnavailable
    ├── StoreError                                  toolyard.store.errors
    │   ├── DatabaseUnavailable                     cannot be reached, read or written now
    │   │   └── AuditUnavailable                    the audit log cannot be written
    │   ├── DatabaseUnusable                        not a database that Toolyard can use
    │   │   ├── DatabaseNewer                       written by a later version
    │   │   └── DatabaseOutdated                    written by an earlier one, to be migrated
    │   ├── KeyMissing, KeyUnusable, WrongKey       problems with the encryption key
    │   ├── Unreadable, Unstorable                  one value cannot be decrypted, or stored
    │   ├── Conflict                                a concurrent change won
    │   └── StoreClosed                             used after ``close``
    ├── ModelError                                  toolyard.agents.models.errors
    │   ├── NoSuchModel, KeyRefused                 unknown model; missing or rejected API key
    │   ├── RateLimited                             the provider throttles us (``retry_after``)
    │   └── ModelSilent, ModelFailed                no output in time; failed or empty response
    ├── ChatError                                   toolyard.agents.chat.errors
    │   └── ChatBusy, ChatRefused                   a turn is active; not possible now
    ├── Declined                                    toolyard.agents.chat.server_questions: sampling denied
    ├── Invalid, NoSuchUser                         toolyard.accounts.errors
    ├── SignInRefused                               wrong password, token or identity
    │   ├── NotSignedIn                             no valid browser session
    │   └── NeverBegun                              identity provider response without a request
    ├── TooManySignIns, NotAllowed                  too many failed attempts; missing right
    ├── ProviderFailed, StartRefused                identity provider failed; unsafe settings
    ├── Invalid                                     toolyard.registry.errors
    ├── CannotListen                                toolyard.web.http_server.socket
    └── Usage                                       toolyard.cli.invocation

``exit_code`` is the exit status of the command line. ``kind`` is a stable identifier, for programs, of the
way in which a server failed; ``toolyard.auth.errors`` defines further ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "AgentsError",
    "ApprovalNeeded",
    "AttachmentRefused",
    "AttachmentTooLarge",
    "BadAnswer",
    "CallTimeout",
    "ChatChanged",
    "ChatError",
    "ChatQuotaExceeded",
    "ConfigError",
    "HttpStatus",
    "LimitReached",
    "NameTaken",
    "NoSuchChat",
    "NotFound",
    "NotHeld",
    "OutcomeUnknown",
    "Outdated",
    "PrivateAddress",
    "Problem",
    "RpcError",
    "ServerError",
    "SessionLost",
    "SignInNeeded",
    "Taken",
    "Throttled",
    "TooManyStreams",
    "ToolRefused",
    "ToolyardError",
    "Unreachable",
]


class ToolyardError(Exception):
    """Base class of all errors.

    ``cause`` is one sentence; ``hint``, if not None, is the next step to take.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, *, hint: str | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.cause}\nhint: {self.hint}" if self.hint else self.cause


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file: its location, what was found and expected, and how to fix it.

    ``path`` is the location inside the document, e.g. ``mcpServers.github.url``.
    """

    message: str
    file: str | None = None
    line: int | None = None
    path: str = ""
    hint: str | None = None

    @property
    def headline(self) -> str:
        """File, line, path and message, without the hint."""
        place = self.file or ""
        if self.line is not None:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        return ": ".join(part for part in (place, self.path, self.message) if part)

    def __str__(self) -> str:
        return f"{self.headline}\n  hint: {self.hint}" if self.hint else self.headline


class _ProblemsError(ToolyardError):
    """Base class of errors that report all problems of a file at once."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigError(_ProblemsError):
    """Raised when the configuration cannot be used. ``problems`` lists every problem, not only the first."""


class AgentsError(_ProblemsError):
    """Raised when an AGENTS.md file cannot be used. ``problems`` lists every problem, not only the first."""


class ToolRefused(ToolyardError):
    """Raised when policy refuses the tool, or no tool has that name.

    ``rule`` is the rule that hides the tool. It is None for unknown tools, and for callers that may not know
    that the tool exists, who get the message of an unknown tool: models, and tokens that do not cover it.
    ``suggestion`` is a similar name that the hint suggests instead of an unknown one.
    """

    exit_code = 4

    def __init__(
        self, cause: str, *, hint: str | None = None, rule: str | None = None, suggestion: str | None = None
    ) -> None:
        super().__init__(cause, hint=hint)
        self.rule = rule
        self.suggestion = suggestion


class ApprovalNeeded(ToolRefused):
    """Raised when a call needs an approval. The same call succeeds once the approval was given.

    ``approval`` is the id of the pending approval, ``link`` the page where it can be given, or None.
    """

    def __init__(
        self, cause: str, *, approval: str, link: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(cause, hint=hint)
        self.approval = approval
        self.link = link


class LimitReached(ToolyardError):
    """Raised when a limit from the settings on the number of objects is reached."""


class TooManyStreams(LimitReached):
    """Raised when as many event streams are open as the settings allow, for one user or in total."""

    retry_after = 5.0


class NameTaken(ToolyardError):
    """Another user has this name."""


class Taken(ToolyardError):
    """The name of a server or the slug of an instance is in use; ``field`` names the field."""

    def __init__(self, cause: str, *, field: str, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.field = field


class NotFound(ToolyardError):
    """The server or instance does not exist for this user."""


class Outdated(ToolyardError):
    """The record was changed since it was read. Nothing was stored. ``current`` is the stored version."""

    def __init__(self, cause: str, *, current: object = None, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.current = current


class ChatError(ToolyardError):
    """Base class of all chat errors."""


class NoSuchChat(ChatError):
    """Raised when a chat, approval or question does not exist or belongs to another user."""


class ChatQuotaExceeded(ChatError):
    """Raised when the storage quota of the user, or of the whole installation, is used up."""


class AttachmentRefused(ChatError):
    """Raised when a file cannot be attached to a message, or an attachment does not exist for this user."""


class AttachmentTooLarge(AttachmentRefused):
    """Raised when a file has more bytes than an attachment may have."""


class ChatChanged(ChatError):
    """Raised when another request chose or began another branch of the chat than the one that was seen."""

    def __init__(
        self, cause: str, *, turn: int | None = None, text: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(cause, hint=hint)
        self.turn = turn
        """The turn that the chat shows in place of the requested one."""
        self.text = text
        """Its message."""


class NotHeld(ChatError):
    """Raised when this process no longer holds the turn: the chat was deleted, or another process took it
    over.
    """


class ServerError(ToolyardError):
    """Base class of failures of one server. Other servers are not affected."""

    exit_code = 3
    kind: ClassVar[str] = "failed"

    def __init__(self, cause: str, *, server: str = "", hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.server = server

    def __str__(self) -> str:
        text = super().__str__()
        return f"server '{self.server}': {text}" if self.server else text


class Unreachable(ServerError):
    """Raised when the request was not executed: the server did not start, refused, exited or was closed."""

    kind = "unreachable"


class PrivateAddress(Unreachable):
    """Raised when a server is at a private address, which is not allowed for it."""

    kind = "private_address"


class Throttled(Unreachable):
    """Raised when the server limits the rate of requests. ``retry_after`` is in seconds, or None."""

    kind = "throttled"

    def __init__(self, cause: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.retry_after = retry_after


class SessionLost(Unreachable):
    """Raised when the server no longer recognises our session. It executed nothing."""

    kind = "session_lost"


class SignInNeeded(ServerError):
    """Raised when credentials are missing, expired or insufficient.

    ``challenge`` is the server's WWW-Authenticate header.
    """

    exit_code = 5
    kind = "sign_in_needed"

    def __init__(
        self, cause: str, *, status: int = 401, challenge: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(cause, hint=hint)
        self.status = status
        self.challenge = challenge


class BadAnswer(ServerError):
    """Raised when the server's response is not valid MCP."""

    kind = "bad_answer"


class HttpStatus(BadAnswer):
    """Raised for an HTTP error status. ``body`` and ``headers`` are those of the response."""

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
    """Raised when the server responded with a JSON-RPC error."""

    exit_code = 1
    kind = "rpc_error"

    def __init__(self, code: int, message: str, data: object = None, *, hint: str | None = None) -> None:
        super().__init__(f"{message} (code {code})", hint=hint)
        self.code = code
        self.message = message
        self.data = data


class CallTimeout(ServerError):
    """Raised when no response arrived in time. A cancellation was sent to the server.

    ``method`` is the MCP method of the request, ``limit_seconds`` the limit that it exceeded. Both are None
    for timeouts that were not measured on a session.
    """

    exit_code = 6
    kind = "timeout"
    method: str | None = None
    limit_seconds: float | None = None


class OutcomeUnknown(ServerError):
    """Raised when the connection ended after the request was sent and before the response arrived.

    The server may have executed the request, so it must not be repeated blindly.
    """

    exit_code = 6
    kind = "outcome_unknown"
