"""Enumerations used as values of settings."""

from __future__ import annotations

from enum import StrEnum

from toolyard.types.call import WriteTools

__all__ = ["AuditMode", "LogFormat", "LogLevel", "PeopleMode", "PinTools", "Registration", "WriteTools"]


class PeopleMode(StrEnum):
    """Authentication of users."""

    NONE = "none"
    """No authentication: one local user, on the loopback address only."""
    PROXY = "proxy"
    """A reverse proxy authenticates users and sends the name in a header."""
    PASSWORD = "password"
    """Users sign in with a password stored by Toolyard."""
    OIDC = "oidc"
    """Users sign in at an OpenID Connect identity provider."""


class AuditMode(StrEnum):
    """Time at which a tool call is written to the audit log."""

    BATCHED = "batched"
    """After the call, in batches. If a batch cannot be written, further calls are refused."""
    STRICT = "strict"
    """One entry before the call and one after it. If the first cannot be written, the call is refused."""


class Registration(StrEnum):
    """Preferred way to register at an authorization server, if the admin entered no client id."""

    DOCUMENT = "document"
    """The URL of a client id metadata document."""
    DYNAMIC = "dynamic"
    """Dynamic client registration."""


class LogLevel(StrEnum):
    """Minimum severity of log lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    """Plain text for people."""
    JSON = "json"
    """One JSON object per line, for programs."""


class PinTools(StrEnum):
    """Configured servers whose tools are pinned at first use if there is no ``mcp.lock``."""

    UNTRUSTED = "untrusted"
    """Changed tools of untrusted servers must be accepted; changes of other servers are logged."""
    ALL = "all"
    """Changed tools of every server must be accepted."""
    OFF = "off"
    """Definitions are not compared."""
