"""Table of HTTP status, problem type and title for each error class."""

from __future__ import annotations

from typing import NamedTuple

from toolyard import errors
from toolyard.accounts import errors as people
from toolyard.agents.chat import errors as chat
from toolyard.agents.models import errors as model
from toolyard.auth import errors as auth
from toolyard.catalog.lock import errors as lock
from toolyard.errors import ToolyardError
from toolyard.registry import errors as registry
from toolyard.store import errors as store

__all__ = ["PROBLEM_KINDS", "PROBLEM_TYPE_PREFIX", "ProblemKind", "find_problem_kind"]

PROBLEM_TYPE_PREFIX = "urn:toolyard:problem:"
"""Prefix of the ``type`` of our problem details."""


class ProblemKind(NamedTuple):
    """HTTP representation of one class of errors."""

    status: int
    type_suffix: str
    title: str


PROBLEM_KINDS: dict[type[ToolyardError], ProblemKind] = {
    # Errors of the request.
    registry.Invalid: ProblemKind(422, "invalid", "Invalid input"),
    registry.Taken: ProblemKind(409, "taken", "The name is in use"),
    registry.NotFound: ProblemKind(404, "not-found", "Not found"),
    people.Invalid: ProblemKind(422, "invalid", "Invalid input"),
    people.NoSuchUser: ProblemKind(404, "not-found", "Not found"),
    people.NameTaken: ProblemKind(409, "taken", "The name is in use"),
    people.NotAllowed: ProblemKind(403, "not-allowed", "Not allowed"),
    people.SignInRefused: ProblemKind(401, "sign-in-refused", "Not signed in"),
    people.TooManySignIns: ProblemKind(429, "too-many-sign-ins", "Too many sign-ins"),
    chat.NoSuchChat: ProblemKind(404, "not-found", "Not found"),
    chat.ChatBusy: ProblemKind(409, "chat-busy", "The chat is busy"),
    chat.ChatQuotaExceeded: ProblemKind(409, "chat-quota-exceeded", "The storage quota for chats is used up"),
    chat.ChatError: ProblemKind(409, "chat-refused", "The chat does not allow this now"),
    lock.Outdated: ProblemKind(409, "outdated", "Changed in the meantime"),
    lock.LockBroken: ProblemKind(409, "lock-broken", "The lock cannot be used"),
    lock.PinsUnavailable: ProblemKind(503, "pins-unavailable", "Stored tool definitions are unavailable"),
    lock.LockUnwritable: ProblemKind(409, "lock-unwritable", "The lock cannot be written"),
    model.NoSuchModel: ProblemKind(422, "no-such-model", "There is no such model"),
    errors.ToolRefused: ProblemKind(404, "tool-refused", "There is no such tool"),
    errors.ApprovalNeeded: ProblemKind(409, "approval-needed", "The call needs an approval"),
    errors.AgentsError: ProblemKind(404, "no-such-agent", "There is no such agent"),
    errors.ConfigError: ProblemKind(404, "no-such-bundle", "There is no such bundle"),
    errors.LimitReached: ProblemKind(409, "limit-reached", "A limit is reached"),
    errors.TooManyStreams: ProblemKind(429, "too-many-streams", "Too many event streams are open"),
    # Errors of an upstream server. Never 401 or 403, which would refer to the caller's own sign-in.
    errors.ServerError: ProblemKind(502, "server-error", "The server failed"),
    errors.Unreachable: ProblemKind(502, "unreachable", "The server cannot be reached"),
    errors.Throttled: ProblemKind(503, "throttled", "The server is busy"),
    errors.SessionLost: ProblemKind(502, "session-lost", "The server lost the session"),
    errors.SignInNeeded: ProblemKind(424, "sign-in-needed", "The server requires a sign-in"),
    errors.BadAnswer: ProblemKind(502, "bad-answer", "The server's response is not valid MCP"),
    errors.RpcError: ProblemKind(502, "rpc-error", "The server returned an error"),
    errors.CallTimeout: ProblemKind(504, "timeout", "The server did not respond in time"),
    errors.OutcomeUnknown: ProblemKind(502, "outcome-unknown", "The outcome of the call is unknown"),
    model.ModelError: ProblemKind(502, "model-failed", "The model failed"),
    auth.AnswerRejected: ProblemKind(400, "answer-rejected", "The sign-in cannot be completed"),
    people.ProviderFailed: ProblemKind(502, "provider-failed", "The identity provider failed"),
    # Errors of this server.
    store.DatabaseUnavailable: ProblemKind(503, "database-unavailable", "The database is unavailable"),
    store.AuditUnavailable: ProblemKind(503, "audit-unavailable", "The audit log cannot be written"),
    store.StoreError: ProblemKind(500, "store-error", "Stored data cannot be used"),
    ToolyardError: ProblemKind(400, "error", "The request failed"),
}
"""Subclasses without a row use the row of their nearest base class."""


def find_problem_kind(error: ToolyardError) -> ProblemKind:
    """Return the HTTP representation of an error."""
    return next(PROBLEM_KINDS[each] for each in type(error).__mro__ if each in PROBLEM_KINDS)
