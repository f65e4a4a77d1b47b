"""Add chats, approvals and long results.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision = "0001"


def _seconds() -> TypeEngine[float]:
    return sa.Double(asdecimal=False)


def _of_chat(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_chat_id")
    return sa.ForeignKeyConstraint(["chat_id"], ["chats.id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "chats",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("title_key", sa.Text(), nullable=False),
        sa.Column("created_at", _seconds(), nullable=False),
        sa.Column("updated_at", _seconds(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("choice", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=True),
        sa.Column("beat_at", _seconds(), nullable=True),
        sa.Column("stop_asked", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chats")),
    )
    op.create_index(op.f("ix_chats_owner"), "chats", ["owner"])
    op.create_index(op.f("ix_chats_runner"), "chats", ["runner"])
    op.create_table(
        "chat_events",
        sa.Column("chat_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", _seconds(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("kept", sa.LargeBinary(), nullable=True),
        _of_chat("chat_events"),
        sa.PrimaryKeyConstraint("chat_id", "seq", name=op.f("pk_chat_events")),
    )
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("definition_hash", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_at", _seconds(), nullable=False),
        sa.Column("chat_id", sa.Text(), nullable=True),
        sa.Column("call_id", sa.Text(), nullable=True),
        sa.Column("answered_at", _seconds(), nullable=True),
        sa.Column("yes", sa.Boolean(), nullable=True),
        _of_chat("approvals"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    op.create_index(op.f("ix_approvals_chat_id"), "approvals", ["chat_id"])
    op.create_index(op.f("ix_approvals_owner_answered_at"), "approvals", ["owner", "answered_at"])
    op.create_table(
        "grants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("definition_hash", sa.Text(), nullable=False),
        sa.Column("predicate", sa.Text(), nullable=False),
        sa.Column("created_at", _seconds(), nullable=False),
        sa.Column("expires_at", _seconds(), nullable=False),
        sa.Column("chat_id", sa.Text(), nullable=True),
        sa.Column("uses", sa.Integer(), nullable=True),
        _of_chat("grants"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
    )
    op.create_index(op.f("ix_grants_chat_id"), "grants", ["chat_id"])
    op.create_index(op.f("ix_grants_owner_expires_at"), "grants", ["owner", "expires_at"])
    op.create_table(
        "results",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("handle", sa.Text(), nullable=False),
        sa.Column("trust", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("expires_at", _seconds(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("principal", "handle", name=op.f("pk_results")),
    )
    op.create_index(op.f("ix_results_expires_at"), "results", ["expires_at"])
