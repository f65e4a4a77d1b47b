"""Add issuers of entered clients, and issuers that get a client id metadata document.

Revision ID: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "auth_documents",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_auth_documents")),
    )
    op.add_column("auth_choices", sa.Column("issuer", sa.Text(), nullable=True))
    # The default serves processes of the previous version, which still insert rows without this column.
    op.add_column(
        "auth_choices",
        sa.Column("issuer_redirect", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
