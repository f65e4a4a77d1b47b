"""The error tree as HTTP: for each error one status, one stable word and one title. The only such table."""

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
"""What stands before the word in a problem's ``type``."""


class ProblemKind(NamedTuple):
    """How one kind of error looks on the wire."""

    status: int
    type_suffix: str
    title: str


PROBLEM_KINDS: dict[type[ToolyardError], ProblemKind] = {
    # What was asked.
    registry.Invalid: ProblemKind(422, "invalid", "A field cannot be used"),
    registry.Taken: ProblemKind(409, "taken", "The name is in use"),
    registry.NotFound: ProblemKind(404, "not-found", "There is no such thing"),
    people.Invalid: ProblemKind(422, "invalid", "A field cannot be used"),
    people.NoSuchUser: ProblemKind(404, "not-found", "There is no such thing"),
    people.NameTaken: ProblemKind(409, "taken", "The name is in use"),
    people.NotAllowed: ProblemKind(403, "not-allowed", "Not allowed"),
    people.SignInRefused: ProblemKind(401, "sign-in-refused", "Not signed in"),
    people.TooManySignIns: ProblemKind(429, "too-many-sign-ins", "Too many sign-ins"),
    chat.NoSuchChat: ProblemKind(404, "not-found", "There is no such thing"),
    chat.ChatBusy: ProblemKind(409, "chat-busy", "The chat is busy"),
    chat.ChatQuotaExceeded: ProblemKind(409, "chat-quota-exceeded", "The space for chats is used up"),
    chat.ChatError: ProblemKind(409, "chat-refused", "This cannot be done with the chat as it is"),
    lock.Outdated: ProblemKind(409, "outdated", "It is not what it was"),
    lock.LockBroken: ProblemKind(409, "lock-broken", "The lock cannot be used"),
    lock.PinsUnavailable: ProblemKind(503, "pins-unavailable", "Stored tool definitions are unavailable"),
    lock.LockUnwritable: ProblemKind(409, "lock-unwritable", "The lock cannot be written"),
    model.NoSuchModel: ProblemKind(422, "no-such-model", "There is no such model"),
    errors.ToolRefused: ProblemKind(404, "tool-refused", "There is no such tool here"),
    errors.ApprovalNeeded: ProblemKind(409, "approval-needed", "The call needs an approval"),
    errors.AgentsError: ProblemKind(404, "no-such-agent", "There is no such agent"),
    errors.ConfigError: ProblemKind(404, "no-such-bundle", "There is no such bundle"),
    # What a server of somebody else did: never 401 or 403, which would speak of the caller's own sign-in.
    errors.ServerError: ProblemKind(502, "server-error", "The server failed"),
    errors.Unreachable: ProblemKind(502, "unreachable", "The server cannot be reached"),
    errors.Throttled: ProblemKind(503, "throttled", "The server is busy"),
    errors.SessionLost: ProblemKind(502, "session-lost", "The server lost the session"),
    errors.SignInNeeded: ProblemKind(424, "sign-in-needed", "The server wants a sign-in"),
    errors.BadAnswer: ProblemKind(502, "bad-answer", "The server's answer is not MCP"),
    errors.RpcError: ProblemKind(502, "rpc-error", "The server answered with an error"),
    errors.CallTimeout: ProblemKind(504, "timeout", "The server did not answer in time"),
    errors.OutcomeUnknown: ProblemKind(502, "outcome-unknown", "The outcome of the call is unknown"),
    model.ModelError: ProblemKind(502, "model-failed", "The model failed"),
    auth.AnswerRejected: ProblemKind(400, "answer-rejected", "The sign-in cannot be finished"),
    people.ProviderFailed: ProblemKind(502, "provider-failed", "The identity provider failed"),
    # What is ours.
    store.DatabaseUnavailable: ProblemKind(503, "database-unavailable", "The database does not answer"),
    store.AuditUnavailable: ProblemKind(503, "audit-unavailable", "The audit log cannot be written"),
    store.StoreError: ProblemKind(500, "store-error", "What is stored cannot be used"),
    ToolyardError: ProblemKind(400, "error", "This cannot be done"),
}
"""A class without a row has that of the nearest class above it."""


def find_problem_kind(error: ToolyardError) -> ProblemKind:
    """How an error looks on the wire."""
    return next(PROBLEM_KINDS[each] for each in type(error).__mro__ if each in PROBLEM_KINDS)
