"""What Alembic runs: the scripts in ``versions``, over the connection that ``migrating`` gives it."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
