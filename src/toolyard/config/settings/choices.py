"""The settings that are one of a few words."""

from __future__ import annotations

from enum import StrEnum

from toolyard.types.decision import WriteTools

__all__ = ["AuditMode", "LogFormat", "LogLevel", "PeopleMode", "PinTools", "Registration", "WriteTools"]


class PeopleMode(StrEnum):
    """Who is calling, and how they prove it."""

    NONE = "none"
    """One local user, on the loopback address only."""
    PROXY = "proxy"
    """A proxy in front of us names the user in a header."""
    PASSWORD = "password"
    """Users have passwords here."""
    OIDC = "oidc"
    """An identity provider signs users in."""


class AuditMode(StrEnum):
    """When the entry of a tool call is written to the audit log."""

    BATCHED = "batched"
    """After the call, with others. Once a batch could not be written, calls are refused."""
    STRICT = "strict"
    """One entry before the call, which is not made where that fails, and one after it."""


class Registration(StrEnum):
    """How we make ourselves known to an authorization server first, where an admin entered nothing."""

    DOCUMENT = "document"
    """By the address of a metadata document."""
    DYNAMIC = "dynamic"
    """By registering dynamically."""


class LogLevel(StrEnum):
    """The least that is worth a log line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """What log lines look like."""

    TEXT = "text"
    """For people."""
    JSON = "json"
    """For machines."""


class PinTools(StrEnum):
    """Which configured servers without an ``mcp.lock`` have their tools pinned at first use."""

    UNTRUSTED = "untrusted"
    """Changed tools of untrusted servers wait to be accepted; changes of others are logged."""
    ALL = "all"
    """Changed tools of every server wait to be accepted."""
    OFF = "off"
    """Nothing is compared."""
