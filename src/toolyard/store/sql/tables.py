"""Every table.

Times are seconds since the epoch. ``…_key`` is a name as ``folding.folded`` makes it, and is what must be
unique. ``digest`` is the SHA-256 of a secret or of a key that may be too long for an index. Columns of bytes
hold what the cipher sealed, except those of ``catalogues``, ``chat_events``, ``config_pins``,
``pins`` and ``results``.

A change here needs a new file in ``migrations/versions``; a test compares the two.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from toolyard.store.sql.columns import INDEXED, RowNumber, Seconds, Texts, Words

__all__ = [
    "api_tokens",
    "approvals",
    "attempts",
    "audit",
    "auth_bound",
    "auth_choices",
    "auth_clients",
    "auth_documents",
    "auth_grants",
    "auth_pending",
    "catalogues",
    "chat_events",
    "chats",
    "config_pins",
    "grants",
    "instances",
    "invites",
    "keys",
    "letters",
    "metadata",
    "pins",
    "results",
    "servers",
    "sessions",
    "sign_ins",
    "users",
]

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _digest() -> Column[str]:
    return Column("digest", Words(64), primary_key=True)


def _user() -> Column[str]:
    return Column("user_id", Words(INDEXED), ForeignKey("users.id", ondelete="CASCADE"), nullable=False)


# People.

users = Table(
    "users",
    metadata,
    Column("id", Words(INDEXED), primary_key=True),
    Column("name", Words(INDEXED), nullable=False),
    Column("name_key", Words(INDEXED), nullable=False, unique=True),
    Column("role", Words(20), nullable=False),
    Column("created_at", Seconds(), nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("password_hash", Words(1_000)),
    Column("subject", Words(INDEXED), unique=True),
    Column("last_seen", Seconds()),
    Column("verified_email", Words(INDEXED), index=True),
    Column("notice", Words()),
)

sessions = Table(
    "sessions",
    metadata,
    _digest(),
    Column("id", Words(INDEXED), nullable=False, unique=True),
    _user(),
    Column("created_at", Seconds(), nullable=False),
    Column("expires_at", Seconds(), nullable=False, index=True),
    Column("last_seen", Seconds()),
    Column("network", Words(INDEXED), nullable=False, server_default=""),
    Column("browser", Words(INDEXED), nullable=False, server_default=""),
    Index(None, "user_id"),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    _digest(),
    Column("id", Words(INDEXED), nullable=False, unique=True),
    _user(),
    Column("name", Words(INDEXED), nullable=False),
    Column("rights", Texts, nullable=False),
    Column("servers", Texts),
    Column("tools", Texts),
    Column("agents", Texts),
    Column("created_at", Seconds(), nullable=False),
    Column("expires_at", Seconds()),
    Column("last_used_at", Seconds()),
    Index(None, "user_id"),
)

invites = Table(
    "invites",
    metadata,
    _digest(),
    Column(
        "user_id", Words(INDEXED), ForeignKey("users.id", ondelete="CASCADE"), nullable=False, unique=True
    ),
    Column("expires_at", Seconds(), nullable=False),
    Column("made_by", Words(INDEXED), nullable=False, server_default=""),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", RowNumber(), primary_key=True),
    Column("digest", Words(64), nullable=False),
    Column("at", Seconds(), nullable=False, index=True),
    Index(None, "digest", "at"),
)

sign_ins = Table(
    "sign_ins",
    metadata,
    _digest(),
    Column("body", LargeBinary, nullable=False),
    Column("at", Seconds(), nullable=False, index=True),
)

# The registry.

servers = Table(
    "servers",
    metadata,
    Column("id", Words(INDEXED), primary_key=True),
    Column("name", Words(INDEXED), nullable=False),
    Column("name_key", Words(INDEXED), nullable=False, unique=True),
    Column("url", Words(), nullable=False),
    Column("transport", Words(20), nullable=False),
    Column("trust", Words(20), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("description", Words(), nullable=False),
    Column("private_addresses", Boolean, nullable=False),
    Column("allow_tools", Texts),
    Column("deny_tools", Texts, nullable=False),
    Column("created_at", Seconds(), nullable=False),
    Column("updated_at", Seconds(), nullable=False),
)

auth_choices = Table(
    "auth_choices",
    metadata,
    Column("server_id", Words(INDEXED), ForeignKey("servers.id", ondelete="CASCADE"), nullable=False),
    Column("id", Words(100), nullable=False),
    Column("position", Integer, nullable=False),
    Column("kind", Words(20), nullable=False),
    Column("label", Words(), nullable=False),
    Column("place", Words(20), nullable=False),
    Column("key", Words()),
    Column("registration", Words(20), nullable=False),
    Column("client_id", Words()),
    Column("client_secret", LargeBinary),
    Column("scopes", Texts, nullable=False),
    Column("resource", Words()),
    Column("legacy_discovery", Boolean, nullable=False),
    Column("issuer", Words()),
    Column("issuer_redirect", Boolean, nullable=False, server_default=false()),
    PrimaryKeyConstraint("server_id", "id"),
)

instances = Table(
    "instances",
    metadata,
    Column("id", Words(INDEXED), primary_key=True),
    _user(),
    Column("server_id", Words(INDEXED), ForeignKey("servers.id", ondelete="CASCADE"), nullable=False),
    # No foreign key: an instance whose choice is gone stays, and waits for its user to pick another.
    Column("choice_id", Words(100), nullable=False),
    Column("slug", Words(100), nullable=False),
    Column("slug_key", Words(100), nullable=False),
    Column("name", Words(), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("tool_filter", Texts),
    Column("value", LargeBinary),
    Column("state", Words(20), nullable=False),
    Column("reason", Words()),
    Column("created_at", Seconds(), nullable=False),
    Column("updated_at", Seconds(), nullable=False),
    UniqueConstraint("user_id", "slug_key"),
    Index(None, "server_id"),
)

# Without an instance, what was accepted of a server for everyone.
pins = Table(
    "pins",
    metadata,
    _digest(),
    Column(
        "server_id", Words(INDEXED), ForeignKey("servers.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    Column("instance_id", Words(INDEXED), ForeignKey("instances.id", ondelete="CASCADE"), index=True),
    Column("revision", Integer, nullable=False),
    Column("pins", LargeBinary, nullable=False),
    Column("seen", LargeBinary),
)

# Pins of configured servers, which have no row to refer to. ``instance_id`` is a hash of the entry.
config_pins = Table(
    "config_pins",
    metadata,
    _digest(),
    Column("server_id", Words(INDEXED), nullable=False),
    Column("instance_id", Words(INDEXED)),
    Column("revision", Integer, nullable=False),
    Column("pins", LargeBinary, nullable=False),
    Column("seen", LargeBinary),
    Column("saved_at", Seconds(), nullable=False),
)

# Sign-ins to servers. Grants and pending sign-ins name what they are for by a key, not by a foreign key: it
# may be a server of a configuration file.

auth_pending = Table(
    "auth_pending",
    metadata,
    _digest(),
    Column("key", Words(), nullable=False),
    Column("key_digest", Words(64), nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
    Column("began_at", Seconds(), nullable=False, index=True),
)

auth_grants = Table(
    "auth_grants",
    metadata,
    _digest(),
    Column("key", Words(), nullable=False),
    Column("serial", Words(100), nullable=False),
    Column("body", LargeBinary, nullable=False),
)

auth_clients = Table(
    "auth_clients",
    metadata,
    _digest(),
    Column("issuer", Words(), nullable=False),
    Column("redirect_uri", Words(), nullable=False),
    Column("client_id", Words(), nullable=False),
    Column("body", LargeBinary, nullable=False),
)

auth_documents = Table(
    "auth_documents",
    metadata,
    _digest(),
    Column("issuer", Words(), nullable=False),
)

auth_bound = Table(
    "auth_bound",
    metadata,
    _digest(),
    Column("server_url", Words(), nullable=False),
    Column("client_id", Words(), nullable=False),
    Column("issuer", Words(), nullable=False),
)

# Chats. No foreign key to users: at a terminal the owner is the local user, who has no account there.


def _owner() -> Column[str]:
    return Column("owner", Words(INDEXED), nullable=False)


def _of_chat(**options: Any) -> Column[str]:
    return Column("chat_id", Words(INDEXED), ForeignKey("chats.id", ondelete="CASCADE"), **options)


chats = Table(
    "chats",
    metadata,
    Column("id", Words(INDEXED), primary_key=True),
    _owner(),
    Column("title", Words(), nullable=False),
    Column("title_key", Text, nullable=False),
    Column("created_at", Seconds(), nullable=False),
    # Not indexed, and so cheap to change with every event.
    Column("updated_at", Seconds(), nullable=False),
    Column("agent", Words()),
    Column("model", Words()),
    Column("choice", Texts),
    Column("state", Words(20), nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("runner", Words(INDEXED), index=True),
    Column("beat_at", Seconds()),
    Column("stop_asked", Boolean, nullable=False),
    # Of its events, as they are stored.
    Column("bytes", BigInteger, nullable=False, server_default="0"),
    Index(None, "owner"),
)

chat_events = Table(
    "chat_events",
    metadata,
    _of_chat(nullable=False),
    Column("seq", BigInteger, nullable=False, autoincrement=False),
    Column("turn", BigInteger, nullable=False),
    Column("kind", Words(20), nullable=False),
    Column("at", Seconds(), nullable=False),
    Column("part", Text, nullable=False),
    # What was said, folded, to look for words in. What may be large comes last: SQLite reads up to there.
    Column("words", Text),
    Column("body", Text, nullable=False),
    Column("kept", LargeBinary),
    PrimaryKeyConstraint("chat_id", "seq"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", Words(INDEXED), primary_key=True),
    _owner(),
    Column("tool", Words(), nullable=False),
    Column("name", Words(), nullable=False),
    Column("definition_hash", Words(INDEXED), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("reason", Words(), nullable=False),
    Column("asked_at", Seconds(), nullable=False),
    _of_chat(index=True),
    Column("call_id", Text),
    Column("answered_at", Seconds()),
    Column("yes", Boolean),
    Index(None, "owner", "answered_at"),
)

grants = Table(
    "grants",
    metadata,
    Column("id", Words(INDEXED), primary_key=True),
    _owner(),
    Column("tool", Words(), nullable=False),
    Column("name", Words(), nullable=False),
    Column("definition_hash", Words(INDEXED), nullable=False),
    Column("predicate", Text, nullable=False),
    Column("created_at", Seconds(), nullable=False),
    Column("expires_at", Seconds(), nullable=False),
    _of_chat(index=True),
    Column("uses", Integer),
    Index(None, "owner", "expires_at"),
)

# What else is kept.

results = Table(
    "results",
    metadata,
    Column("principal", Words(INDEXED), nullable=False),
    Column("handle", Words(INDEXED), nullable=False),
    Column("trust", Words(20), nullable=False),
    Column("server", Words(), nullable=False),
    Column("expires_at", Seconds(), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("principal", "handle"),
)

catalogues = Table(
    "catalogues",
    metadata,
    _digest(),
    Column("server_id", Words(INDEXED), nullable=False, index=True),
    Column("entry_hash", Words(), nullable=False),
    Column("scope", Words(), nullable=False),
    Column("content_hash", Words(), nullable=False),
    Column("fetched_at", Seconds(), nullable=False, index=True),
    Column("ttl", Seconds(), nullable=False),
    Column("body", LargeBinary, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("id", RowNumber(), primary_key=True),
    Column("at", Seconds(), nullable=False),
    Column("action", Words(100), nullable=False),
    Column("actor", Words(INDEXED), nullable=False),
    Column("actor_name", Words(), nullable=False),
    Column("target", Words(), nullable=False),
    Column("outcome", Words(), nullable=False),
    Column("address", Words(), nullable=False),
    Column("details", Words(), nullable=False),
    Index(None, "action", "id"),
    Index(None, "actor", "id"),
)

# Short-lived: whoever a letter is for takes it out.

letters = Table(
    "letters",
    metadata,
    Column("id", RowNumber(), primary_key=True),
    Column("box", Words(INDEXED), nullable=False, index=True),
    Column("sent_at", Seconds(), nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Words(20), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
