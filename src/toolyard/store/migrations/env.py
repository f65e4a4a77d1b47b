"""Entry point of Alembic. Runs the scripts in ``versions`` on the connection that ``sql.migrate`` passes."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
