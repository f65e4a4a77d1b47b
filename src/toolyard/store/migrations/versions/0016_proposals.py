"""Add proposed servers.

Revision ID: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0016"
down_revision = "0015"


def _seconds() -> TypeEngine[float]:
    return sa.Double(asdecimal=False)


def upgrade() -> None:
    op.create_table(
        "proposals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("known_id", sa.Text()),
        sa.Column("entry", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("created_at", _seconds(), nullable=False),
        sa.Column("decided_at", _seconds()),
        sa.Column("server_id", sa.Text()),
        sa.Column("seen_at", _seconds()),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_proposals_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proposals")),
    )
    op.create_index(op.f("ix_proposals_user_id"), "proposals", ["user_id"])
    op.create_index(op.f("ix_proposals_state_created_at"), "proposals", ["state", "created_at"])
