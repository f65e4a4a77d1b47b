"""Add the first use of an MCP client, and the end of the first steps, to users.

Revision ID: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("users", sa.Column("client_seen_at", sa.Double(asdecimal=False)))
    op.add_column("users", sa.Column("first_steps_hidden_at", sa.Double(asdecimal=False)))
    # People who were here before know their way.
    op.execute("UPDATE users SET first_steps_hidden_at = created_at")
