"""Add accepted tool definitions of registry servers and instances.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "pins",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("pins", sa.LargeBinary(), nullable=False),
        sa.Column("seen", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("fk_pins_server_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_pins_instance_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_pins")),
    )
    op.create_index(op.f("ix_pins_instance_id"), "pins", ["instance_id"])
    op.create_index(op.f("ix_pins_server_id"), "pins", ["server_id"])
