"""Add accepted tool definitions of servers in configuration files.

Revision ID: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0007"
down_revision = "0006"


def _seconds() -> TypeEngine[float]:
    return sa.Double(asdecimal=False)


def upgrade() -> None:
    op.create_table(
        "config_pins",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("pins", sa.LargeBinary(), nullable=False),
        sa.Column("seen", sa.LargeBinary(), nullable=True),
        sa.Column("saved_at", _seconds(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_config_pins")),
    )
