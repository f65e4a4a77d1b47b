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

__all__ = ["KINDS", "PREFIX", "Kind", "kind_of"]

PREFIX = "urn:toolyard:problem:"
"""What stands before the word in a problem's ``type``."""


class Kind(NamedTuple):
    """How one kind of error looks on the wire."""

    status: int
    word: str
    title: str


KINDS: dict[type[ToolyardError], Kind] = {
    # What was asked.
    registry.Invalid: Kind(422, "invalid", "A field cannot be used"),
    registry.Taken: Kind(409, "taken", "The name is in use"),
    registry.NotFound: Kind(404, "not-found", "There is no such thing"),
    people.Invalid: Kind(422, "invalid", "A field cannot be used"),
    people.NoSuchUser: Kind(404, "not-found", "There is no such thing"),
    people.NameTaken: Kind(409, "taken", "The name is in use"),
    people.NotAllowed: Kind(403, "not-allowed", "Not allowed"),
    people.SignInRefused: Kind(401, "sign-in-refused", "Not signed in"),
    people.TooManySignIns: Kind(429, "too-many-sign-ins", "Too many sign-ins"),
    chat.NoSuchChat: Kind(404, "not-found", "There is no such thing"),
    chat.ChatBusy: Kind(409, "chat-busy", "The chat is busy"),
    chat.ChatQuotaExceeded: Kind(409, "chat-quota-exceeded", "The space for chats is used up"),
    chat.ChatError: Kind(409, "chat-refused", "This cannot be done with the chat as it is"),
    lock.Outdated: Kind(409, "outdated", "It is not what it was"),
    lock.LockBroken: Kind(409, "lock-broken", "The lock cannot be used"),
    lock.PinsUnavailable: Kind(503, "pins-unavailable", "Stored tool definitions are unavailable"),
    lock.LockUnwritable: Kind(409, "lock-unwritable", "The lock cannot be written"),
    model.NoSuchModel: Kind(422, "no-such-model", "There is no such model"),
    errors.ToolRefused: Kind(404, "tool-refused", "There is no such tool here"),
    errors.ApprovalNeeded: Kind(409, "approval-needed", "The call needs an approval"),
    errors.AgentsError: Kind(404, "no-such-agent", "There is no such agent"),
    errors.ConfigError: Kind(404, "no-such-bundle", "There is no such bundle"),
    # What a server of somebody else did: never 401 or 403, which would speak of the caller's own sign-in.
    errors.ServerError: Kind(502, "server-error", "The server failed"),
    errors.Unreachable: Kind(502, "unreachable", "The server cannot be reached"),
    errors.Throttled: Kind(503, "throttled", "The server is busy"),
    errors.SessionLost: Kind(502, "session-lost", "The server lost the session"),
    errors.SignInNeeded: Kind(424, "sign-in-needed", "The server wants a sign-in"),
    errors.BadAnswer: Kind(502, "bad-answer", "The server's answer is not MCP"),
    errors.RpcError: Kind(502, "rpc-error", "The server answered with an error"),
    errors.CallTimeout: Kind(504, "timeout", "The server did not answer in time"),
    errors.OutcomeUnknown: Kind(502, "outcome-unknown", "The outcome of the call is unknown"),
    model.ModelError: Kind(502, "model-failed", "The model failed"),
    auth.AnswerRejected: Kind(400, "answer-rejected", "The sign-in cannot be finished"),
    people.ProviderFailed: Kind(502, "provider-failed", "The identity provider failed"),
    # What is ours.
    store.DatabaseUnavailable: Kind(503, "database-unavailable", "The database does not answer"),
    store.AuditUnavailable: Kind(503, "audit-unavailable", "The audit log cannot be written"),
    store.StoreError: Kind(500, "store-error", "What is stored cannot be used"),
    ToolyardError: Kind(400, "error", "This cannot be done"),
}
"""A class without a row has that of the nearest class above it."""


def kind_of(error: ToolyardError) -> Kind:
    """How an error looks on the wire."""
    return next(KINDS[each] for each in type(error).__mro__ if each in KINDS)
