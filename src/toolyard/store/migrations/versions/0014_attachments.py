"""Add attachments of chat messages.

Revision ID: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0014"
down_revision = "0013"


def _seconds() -> TypeEngine[float]:
    return sa.Double(asdecimal=False)


def upgrade() -> None:
    op.create_table(
        "attachments",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("chat_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("mime", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", _seconds(), nullable=True),
        sa.ForeignKeyConstraint(
            ["chat_id"], ["chats.id"], name=op.f("fk_attachments_chat_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attachments")),
    )
    for column in ("chat_id", "expires_at", "owner"):
        op.create_index(op.f(f"ix_attachments_{column}"), "attachments", [column])
    op.create_table(
        "attachment_chunks",
        sa.Column("attachment_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attachment_id"],
            ["attachments.id"],
            name=op.f("fk_attachment_chunks_attachment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("attachment_id", "number", name=op.f("pk_attachment_chunks")),
    )
