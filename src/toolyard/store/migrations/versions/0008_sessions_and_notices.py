"""Add the use of sessions, the creator of an invite, and a notice for a user.

Revision ID: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("users", sa.Column("notice", sa.Text()))
    op.add_column("invites", sa.Column("made_by", sa.Text(), nullable=False, server_default=""))
    op.add_column("sessions", sa.Column("last_seen", sa.Double(asdecimal=False)))
    op.add_column("sessions", sa.Column("network", sa.Text(), nullable=False, server_default=""))
    op.add_column("sessions", sa.Column("browser", sa.Text(), nullable=False, server_default=""))
