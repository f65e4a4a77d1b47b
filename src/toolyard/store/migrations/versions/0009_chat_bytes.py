"""Add the byte counter of each chat.

Revision ID: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("chats", sa.Column("bytes", sa.BigInteger(), nullable=False, server_default="0"))
    size = "octet_length({})" if op.get_bind().dialect.name == "postgresql" else "length(CAST({} AS BLOB))"
    body, kept = size.format("body"), size.format("kept")
    op.execute(
        f"UPDATE chats SET bytes = (SELECT COALESCE(SUM({body} + COALESCE({kept}, 0)), 0)"
        " FROM chat_events WHERE chat_events.chat_id = chats.id)"
    )
