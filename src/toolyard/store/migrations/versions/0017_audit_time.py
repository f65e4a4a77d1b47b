"""Index the audit log by time.

Revision ID: 0017
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_index(op.f("ix_audit_at"), "audit", ["at"])
