"""Definitions of all tables.

Times are seconds since the epoch. A column ``…_key`` holds a name folded by ``stored_values.fold_case``, and
carries the unique constraint. ``digest`` is the SHA-256 of a secret or of a key that may be too long for an
index. Binary columns hold ciphertexts of ``cipher.Cipher``, except those of ``attachment_chunks``,
``catalogues``, ``chat_events``, ``config_pins``, ``pins`` and ``results``.

The columns of registry records and models follow from the fields in ``types.registry`` and
``types.stored_model``.

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
    text,
)

from toolyard.store.sql.columns import (
    Dollars,
    LimitedText,
    RowNumber,
    Seconds,
    TextList,
    build_record_columns,
)
from toolyard.store.sql.stored_values import MAX_INDEXED_CHARACTERS
from toolyard.types.registry import AuthChoice, Instance, RegistryServer
from toolyard.types.stored_model import StoredModel

__all__ = [
    "AUDIT_FAILURE_CONDITION",
    "agents",
    "api_tokens",
    "approvals",
    "attachment_chunks",
    "attachments",
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
    "models",
    "pins",
    "proposals",
    "questions",
    "results",
    "servers",
    "sessions",
    "sign_ins",
    "usage",
    "usage_totals",
    "users",
]

AUDIT_FAILURE_CONDITION = "outcome NOT IN ('ok', '')"
"""Condition of the index of audit entries about failures and refusals. A query uses the index only if it has
the condition word for word."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _digest_column() -> Column[str]:
    return Column("digest", LimitedText(64), primary_key=True)


def _usage_columns() -> list[Column[Any]]:
    return [
        Column("calls", BigInteger, nullable=False),
        Column("failures", BigInteger, nullable=False),
        Column("seconds", Seconds(), nullable=False),
        Column("slowest_seconds", Seconds(), nullable=False),
        Column("requests", BigInteger, nullable=False),
        Column("input_tokens", BigInteger, nullable=False),
        Column("output_tokens", BigInteger, nullable=False),
        Column("cost", Dollars(), nullable=False),
    ]


def _user_column() -> Column[str]:
    return Column(
        "user_id",
        LimitedText(MAX_INDEXED_CHARACTERS),
        ForeignKey("users.id", ondelete="CASCADE"),
        nullable=False,
    )


# Accounts.

users = Table(
    "users",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    Column("name", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("name_key", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, unique=True),
    Column("role", LimitedText(20), nullable=False),
    Column("created_at", Seconds(), nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("password_hash", LimitedText(1_000)),
    Column("subject", LimitedText(MAX_INDEXED_CHARACTERS), unique=True),
    Column("last_seen", Seconds()),
    Column("verified_email", LimitedText(MAX_INDEXED_CHARACTERS), index=True),
    Column("notice", LimitedText()),
    Column("client_seen_at", Seconds()),
    Column("first_steps_hidden_at", Seconds()),
)

sessions = Table(
    "sessions",
    metadata,
    _digest_column(),
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, unique=True),
    _user_column(),
    Column("created_at", Seconds(), nullable=False),
    Column("expires_at", Seconds(), nullable=False, index=True),
    Column("last_seen", Seconds()),
    Column("network", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, server_default=""),
    Column("browser", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, server_default=""),
    Index(None, "user_id"),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    _digest_column(),
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, unique=True),
    _user_column(),
    Column("name", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("rights", TextList, nullable=False),
    Column("servers", TextList),
    Column("tools", TextList),
    Column("agents", TextList),
    Column("created_at", Seconds(), nullable=False),
    Column("expires_at", Seconds()),
    Column("last_used_at", Seconds()),
    Index(None, "user_id"),
)

invites = Table(
    "invites",
    metadata,
    _digest_column(),
    Column(
        "user_id",
        LimitedText(MAX_INDEXED_CHARACTERS),
        ForeignKey("users.id", ondelete="CASCADE"),
        nullable=False,
        unique=True,
    ),
    Column("expires_at", Seconds(), nullable=False),
    Column("made_by", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, server_default=""),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", RowNumber(), primary_key=True),
    Column("digest", LimitedText(64), nullable=False),
    Column("at", Seconds(), nullable=False, index=True),
    Index(None, "digest", "at"),
)

sign_ins = Table(
    "sign_ins",
    metadata,
    _digest_column(),
    Column("body", LargeBinary, nullable=False),
    Column("at", Seconds(), nullable=False, index=True),
)

# The registry.

servers = Table(
    "servers",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    Column("name_key", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, unique=True),
    *build_record_columns(RegistryServer, without="id"),
)

auth_choices = Table(
    "auth_choices",
    metadata,
    Column(
        "server_id",
        LimitedText(MAX_INDEXED_CHARACTERS),
        ForeignKey("servers.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("id", LimitedText(100), nullable=False),
    Column("position", Integer, nullable=False),
    *build_record_columns(AuthChoice, without="id"),
    PrimaryKeyConstraint("server_id", "id"),
)

instances = Table(
    "instances",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    _user_column(),
    Column(
        "server_id",
        LimitedText(MAX_INDEXED_CHARACTERS),
        ForeignKey("servers.id", ondelete="CASCADE"),
        nullable=False,
    ),
    # No foreign key: an instance outlives a removed choice, until its user picks another one.
    Column("choice_id", LimitedText(100), nullable=False),
    Column("slug_key", LimitedText(100), nullable=False),
    *build_record_columns(Instance, without="id user_id server_id choice_id"),
    UniqueConstraint("user_id", "slug_key"),
    Index(None, "server_id"),
)

# Models that admins added.

models = Table(
    "models",
    metadata,
    Column("name", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    *build_record_columns(StoredModel, without="name"),
)

# Accepted tool definitions. Without an instance they apply to every user of the server.
pins = Table(
    "pins",
    metadata,
    _digest_column(),
    Column(
        "server_id",
        LimitedText(MAX_INDEXED_CHARACTERS),
        ForeignKey("servers.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column(
        "instance_id",
        LimitedText(MAX_INDEXED_CHARACTERS),
        ForeignKey("instances.id", ondelete="CASCADE"),
        index=True,
    ),
    Column("revision", Integer, nullable=False),
    Column("pins", LargeBinary, nullable=False),
    Column("seen", LargeBinary),
)

# Pins of servers in configuration files, which have no row to refer to. ``instance_id`` is a hash of the
# entry.
config_pins = Table(
    "config_pins",
    metadata,
    _digest_column(),
    Column("server_id", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("instance_id", LimitedText(MAX_INDEXED_CHARACTERS)),
    Column("revision", Integer, nullable=False),
    Column("pins", LargeBinary, nullable=False),
    Column("seen", LargeBinary),
    Column("saved_at", Seconds(), nullable=False),
)

# Sign-ins to servers. Grants and pending sign-ins refer to an instance or a server by a text key. A foreign
# key is not possible, since the server may be in a configuration file.

auth_pending = Table(
    "auth_pending",
    metadata,
    _digest_column(),
    Column("key", LimitedText(), nullable=False),
    Column("key_digest", LimitedText(64), nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
    Column("began_at", Seconds(), nullable=False, index=True),
)

auth_grants = Table(
    "auth_grants",
    metadata,
    _digest_column(),
    Column("key", LimitedText(), nullable=False),
    Column("serial", LimitedText(100), nullable=False),
    Column("body", LargeBinary, nullable=False),
)

auth_clients = Table(
    "auth_clients",
    metadata,
    _digest_column(),
    Column("issuer", LimitedText(), nullable=False),
    Column("redirect_uri", LimitedText(), nullable=False),
    Column("client_id", LimitedText(), nullable=False),
    Column("body", LargeBinary, nullable=False),
)

auth_documents = Table(
    "auth_documents",
    metadata,
    _digest_column(),
    Column("issuer", LimitedText(), nullable=False),
)

auth_bound = Table(
    "auth_bound",
    metadata,
    _digest_column(),
    Column("server_url", LimitedText(), nullable=False),
    Column("client_id", LimitedText(), nullable=False),
    Column("issuer", LimitedText(), nullable=False),
)

# Chats. No foreign key to users: at a terminal the owner is the local user, who has no account.


def _owner_column() -> Column[str]:
    return Column("owner", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False)


def _chat_column(**options: Any) -> Column[str]:
    return Column(
        "chat_id", LimitedText(MAX_INDEXED_CHARACTERS), ForeignKey("chats.id", ondelete="CASCADE"), **options
    )


chats = Table(
    "chats",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    _owner_column(),
    Column("title", LimitedText(), nullable=False),
    Column("title_key", Text, nullable=False),
    Column("created_at", Seconds(), nullable=False),
    # Not indexed, which keeps its update with every event cheap.
    Column("updated_at", Seconds(), nullable=False),
    Column("agent", LimitedText()),
    Column("model", LimitedText()),
    Column("choice", TextList),
    Column("state", Text, nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("runner", Text, index=True),
    Column("beat_at", Seconds()),
    Column("stop_asked", Boolean, nullable=False),
    # Total size of the stored events, for quotas.
    Column("bytes", BigInteger, nullable=False, server_default="0"),
    Index(None, "owner"),
)

chat_events = Table(
    "chat_events",
    metadata,
    # Texts are not checked when a row is written: its chat exists, and the others are checked or cleaned when
    # the event is prepared.
    Column("chat_id", Text, ForeignKey("chats.id", ondelete="CASCADE"), nullable=False),
    Column("seq", BigInteger, nullable=False, autoincrement=False),
    Column("turn", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Seconds(), nullable=False),
    Column("part", Text, nullable=False),
    # Folded text for searches. Large columns come last, since SQLite reads a row only as far as the last
    # column that a query needs.
    Column("words", Text),
    Column("body", Text, nullable=False),
    Column("kept", LargeBinary),
    # Last, as the migration adds it, but cheap to read: only the first event of a turn has a value.
    Column("parent", BigInteger),
    PrimaryKeyConstraint("chat_id", "seq"),
    # All turns of a chat, without reading the other events.
    Index(
        "ix_chat_events_turns",
        "chat_id",
        "seq",
        "parent",
        sqlite_where=text("seq = turn"),
        postgresql_where=text("seq = turn"),
    ),
)

attachments = Table(
    "attachments",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    _owner_column(),
    # Null until it is sent with a message.
    _chat_column(index=True),
    Column("name", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    # Null until the upload is complete.
    Column("mime", LimitedText(MAX_INDEXED_CHARACTERS)),
    Column("size", BigInteger, nullable=False),
    # Null once it is sent.
    Column("expires_at", Seconds(), index=True),
    # Prompt or resource, and the name of its server; empty for a file of the user.
    Column("origin", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, server_default=""),
    Column("server", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, server_default=""),
    Index(None, "owner"),
)

attachment_chunks = Table(
    "attachment_chunks",
    metadata,
    Column(
        "attachment_id",
        LimitedText(MAX_INDEXED_CHARACTERS),
        ForeignKey("attachments.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("number", Integer, nullable=False, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("attachment_id", "number"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    _owner_column(),
    Column("tool", LimitedText(), nullable=False),
    Column("name", LimitedText(), nullable=False),
    Column("definition_hash", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("reason", LimitedText(), nullable=False),
    Column("asked_at", Seconds(), nullable=False),
    _chat_column(index=True),
    Column("call_id", Text),
    Column("answered_at", Seconds()),
    Column("yes", Boolean),
    Index(None, "owner", "answered_at"),
)

grants = Table(
    "grants",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    _owner_column(),
    Column("tool", LimitedText(), nullable=False),
    Column("name", LimitedText(), nullable=False),
    Column("definition_hash", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("predicate", Text, nullable=False),
    Column("created_at", Seconds(), nullable=False),
    Column("expires_at", Seconds(), nullable=False),
    _chat_column(index=True),
    Column("uses", Integer),
    Index(None, "owner", "expires_at"),
)

# Agents that people create. The owner of shared ones is empty. ``slug`` is the id that follows from the name.

agents = Table(
    "agents",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    _owner_column(),
    Column("slug", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("updated_at", Seconds(), nullable=False),
    Column("definition", Text, nullable=False),
    UniqueConstraint("owner", "slug"),
)

# Results, listings, audit log, messages between replicas, and the key check.

results = Table(
    "results",
    metadata,
    Column("principal", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("handle", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("trust", LimitedText(20), nullable=False),
    Column("server", LimitedText(), nullable=False),
    Column("expires_at", Seconds(), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("principal", "handle"),
)

catalogues = Table(
    "catalogues",
    metadata,
    _digest_column(),
    Column("server_id", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, index=True),
    Column("entry_hash", LimitedText(), nullable=False),
    Column("scope", LimitedText(), nullable=False),
    Column("content_hash", LimitedText(), nullable=False),
    Column("fetched_at", Seconds(), nullable=False, index=True),
    Column("ttl", Seconds(), nullable=False),
    Column("body", LargeBinary, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("id", RowNumber(), primary_key=True),
    Column("at", Seconds(), nullable=False),
    Column("action", LimitedText(100), nullable=False),
    Column("actor", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("actor_name", LimitedText(), nullable=False),
    Column("target", LimitedText(), nullable=False),
    Column("outcome", LimitedText(), nullable=False),
    Column("address", LimitedText(), nullable=False),
    Column("details", LimitedText(), nullable=False),
    # Id of the configured or registry server that the entry is about, also if its target is an instance.
    Column("server", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, server_default=""),
    Index(None, "action", "id"),
    Index(None, "actor", "id"),
    Index(None, "at"),
    Index(None, "server", "id"),
    Index(
        "ix_audit_failures",
        "id",
        sqlite_where=text(AUDIT_FAILURE_CONDITION),
        postgresql_where=text(AUDIT_FAILURE_CONDITION),
    ),
)

# Daily sums of the tool calls and model requests in the audit log. The digest covers person, server, tool,
# agent and model.

usage = Table(
    "usage",
    metadata,
    Column("day", LimitedText(10), nullable=False),
    Column("digest", LimitedText(64), nullable=False),
    Column("person", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False),
    Column("server", LimitedText(), nullable=False),
    Column("tool", LimitedText(), nullable=False),
    Column("agent", LimitedText(), nullable=False),
    Column("model", LimitedText(), nullable=False),
    *_usage_columns(),
    PrimaryKeyConstraint("day", "digest"),
    Index(None, "person", "day"),
)

# The same sums of everybody, by day and by month, for each day, person, server, tool, agent and model. The
# digest is that of the key.

usage_totals = Table(
    "usage_totals",
    metadata,
    Column("category", LimitedText(20), nullable=False),
    Column("period", LimitedText(10), nullable=False),
    Column("digest", LimitedText(64), nullable=False),
    Column("key", LimitedText(), nullable=False),
    *_usage_columns(),
    PrimaryKeyConstraint("category", "period", "digest"),
    # The rows of a query are next to each other.
    sqlite_with_rowid=False,
)

# Questions from servers that wait for an answer on the page; deleted with the answer.

questions = Table(
    "questions",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    Column("owner", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, index=True),
    Column("server", LimitedText(), nullable=False),
    Column("calls", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("asked_at", Seconds(), nullable=False),
    Column("expires_at", Seconds(), nullable=False),
)

# Servers that people propose.

proposals = Table(
    "proposals",
    metadata,
    Column("id", LimitedText(MAX_INDEXED_CHARACTERS), primary_key=True),
    _user_column(),
    Column("name", LimitedText(), nullable=False),
    Column("reason", LimitedText(), nullable=False),
    Column("known_id", LimitedText(MAX_INDEXED_CHARACTERS)),
    Column("entry", Text),
    Column("state", LimitedText(20), nullable=False),
    Column("answer", LimitedText(), nullable=False),
    Column("decided_by", LimitedText(), nullable=False),
    Column("created_at", Seconds(), nullable=False),
    Column("decided_at", Seconds()),
    Column("server_id", LimitedText(MAX_INDEXED_CHARACTERS)),
    Column("seen_at", Seconds()),
    Index(None, "user_id"),
    Index(None, "state", "created_at"),
)

# Messages between replicas, deleted by their recipient within seconds.

letters = Table(
    "letters",
    metadata,
    Column("id", RowNumber(), primary_key=True),
    Column("box", LimitedText(MAX_INDEXED_CHARACTERS), nullable=False, index=True),
    Column("sent_at", Seconds(), nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", LimitedText(20), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
