"""Add models that admins enter.

Revision ID: 0015
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    text: TypeEngine[Any] = sa.Text()
    flag: TypeEngine[Any] = sa.Boolean()
    fraction: TypeEngine[Any] = sa.Double(asdecimal=False)
    columns: list[tuple[str, TypeEngine[Any], bool]] = [
        ("name", text, False),
        ("provider", text, False),
        ("model", text, False),
        ("label", text, True),
        ("base_url", text, True),
        ("private_addresses", flag, False),
        ("api_key", sa.LargeBinary(), True),
        ("key_variable", text, True),
        ("audience", text, False),
        ("people", text, False),
        ("input_price", fraction, True),
        ("output_price", fraction, True),
        ("sees", flag, True),
        ("hears", flag, True),
        ("temperature", fraction, True),
        ("context", sa.Integer(), True),
        ("is_default", flag, False),
        ("revision", sa.Integer(), False),
        ("created_at", fraction, False),
        ("updated_at", fraction, False),
    ]
    op.create_table(
        "models",
        *(sa.Column(name, kind, nullable=nullable) for name, kind, nullable in columns),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_models")),
    )
