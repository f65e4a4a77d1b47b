"""Add messages between processes.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0004"
down_revision = "0003"


def _number() -> TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _seconds() -> TypeEngine[float]:
    return sa.Double(asdecimal=False)


def upgrade() -> None:
    op.create_table(
        "letters",
        sa.Column("id", _number(), nullable=False),
        sa.Column("box", sa.Text(), nullable=False),
        sa.Column("sent_at", _seconds(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_letters")),
    )
    op.create_index(op.f("ix_letters_box"), "letters", ["box"])
    op.create_index(op.f("ix_letters_sent_at"), "letters", ["sent_at"])
