"""Reset roles that came only from the setting ``admins``, and refer to invited accounts by id.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0005"
down_revision = "0004"

# Accounts whose role came from the setting `admins` and was not granted by an admin: those of the identity
# provider, and those used without a password, which only the mode proxy allows. An invited admin without a
# password was never seen, and so keeps the role. The local user is excluded, since other modes ignore it.
_NOT_GRANTED = """
UPDATE users SET role = 'user'
WHERE id <> 'local' AND (subject IS NOT NULL OR (password_hash IS NULL AND last_seen IS NOT NULL))
"""

_INVITES = """
SELECT invites.digest, users.id AS user_id, invites.expires_at
FROM invites JOIN users ON users.name_key = invites.name_key
"""


def _seconds() -> TypeEngine[float]:
    return sa.Double(asdecimal=False)


def upgrade() -> None:
    op.add_column("users", sa.Column("verified_email", sa.Text()))
    op.create_index(op.f("ix_users_verified_email"), "users", ["verified_email"])
    op.execute(sa.text(_NOT_GRANTED))
    open_invites = op.get_bind().execute(sa.text(_INVITES)).mappings().all()
    op.drop_table("invites")
    invites = op.create_table(
        "invites",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("expires_at", _seconds(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_invites_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_invites")),
        sa.UniqueConstraint("user_id", name=op.f("uq_invites_user_id")),
    )
    op.bulk_insert(invites, [dict(row) for row in open_invites])
