"""Add the origin of attachments that servers sent.

Revision ID: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    for name in ("origin", "server"):
        op.add_column("attachments", sa.Column(name, sa.Text(), nullable=False, server_default=""))
