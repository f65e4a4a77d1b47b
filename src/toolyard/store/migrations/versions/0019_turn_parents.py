"""Add the parents of turns: the alternatives of a chat form a tree.

Retries of earlier versions become alternatives of the turn that they repeat. All other turns follow the one
before them, which needs no value.

Revision ID: 0019
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("chat_events", sa.Column("parent", sa.BigInteger(), nullable=True))
    is_start = sa.text("seq = turn")
    op.create_index(
        "ix_chat_events_turns",
        "chat_events",
        ["chat_id", "seq", "parent"],
        sqlite_where=is_start,
        postgresql_where=is_start,
    )
    connection = op.get_bind()
    update = sa.text("UPDATE chat_events SET parent = :parent WHERE chat_id = :chat_id AND seq = :seq")
    for chat_id, retried in _find_retries(connection).items():
        turns = sa.text("SELECT seq FROM chat_events WHERE chat_id = :id AND seq = turn ORDER BY seq")
        parents, previous = dict[int, int](), 0
        for seq in connection.execute(turns, {"id": chat_id}).scalars().all():
            parents[seq] = parents.get(retried.get(seq, 0), previous)
            if seq in retried:
                values = {"parent": parents[seq], "chat_id": chat_id, "seq": seq}
                connection.execute(update, values)
            previous = seq


def _find_retries(connection: sa.Connection) -> dict[str, dict[int, int]]:
    """Return the turns that repeat another one, and that one, by chat."""
    digits = range(1, 10)
    is_retry = " OR ".join(f"body LIKE :digit{each}" for each in digits)
    query = sa.text(
        "SELECT chat_id, seq, body FROM chat_events"
        f" WHERE seq = turn AND kind IN ('user', 'run') AND ({is_retry})"
    )
    patterns = {f"digit{each}": f'%"again":{each}%' for each in digits}
    retries: dict[str, dict[int, int]] = {}
    for chat_id, seq, body in connection.execute(query, patterns).yield_per(1_000):
        again = json.loads(body).get("again")
        if isinstance(again, int):
            retries.setdefault(chat_id, {})[seq] = again
    return retries
