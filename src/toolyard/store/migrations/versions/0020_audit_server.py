"""Add the server of audit entries, and an index of failures.

Revision ID: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_ACTIONS = ("tool.", "server.", "instance.", "lock.", "config.")


def upgrade() -> None:
    op.add_column("audit", sa.Column("server", sa.Text(), nullable=False, server_default=""))
    connection = op.get_bind()
    find = "instr" if connection.dialect.name == "sqlite" else "strpos"

    def first_part(text: str) -> str:
        return f"substr({text}, 1, {find}({text} || '/', '/') - 1)"

    # The target of a tool of an instance is "@user/slug/tool".
    rest = f"substr(target, {find}(target, '/') + 1)"
    is_instance_tool = "target LIKE '@%/%' AND target NOT LIKE '@native/%'"
    user_id = f"substr({first_part('target')}, 2)"
    of_tool = f"SELECT server_id FROM instances WHERE user_id = {user_id} AND slug = {first_part(rest)}"
    update = (
        "UPDATE audit SET server = CASE"
        " WHEN action LIKE 'instance.%'"
        " THEN coalesce((SELECT server_id FROM instances WHERE instances.id = target), '')"
        f" WHEN {is_instance_tool} THEN coalesce(({of_tool}), '')"
        f" ELSE substr({first_part('target')}, 1, 500) END"
    )
    is_about_server = " OR ".join(f"action LIKE '{each}%'" for each in _ACTIONS)
    connection.execute(sa.text(f"{update} WHERE {is_about_server}"))
    op.create_index("ix_audit_server_id", "audit", ["server", "id"])
    is_failure = sa.text("outcome NOT IN ('ok', '')")
    op.create_index(
        "ix_audit_failures", "audit", ["id"], sqlite_where=is_failure, postgresql_where=is_failure
    )
