"""Deletion of servers, users and credentials with their dependent rows that no foreign key reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, exists, func, literal, or_, select, true, update

from toolyard.store.repositories.rows import batches
from toolyard.store.sql import tables
from toolyard.store.sql.stored_values import compute_digest
from toolyard.types.registry import AuthKind, InstanceState, grant_key

__all__ = [
    "delete_credential_rows",
    "delete_grant_rows",
    "delete_server_rows",
    "delete_tool_approvals",
    "delete_user_rows",
    "find_instance_ids",
]


def find_instance_ids(connection: Connection, condition: Any) -> Sequence[str]:
    """Return the ids of matching instances."""
    return connection.execute(select(tables.instances.c.id).where(condition)).scalars().all()


def delete_grant_rows(connection: Connection, instance_ids: Sequence[str]) -> None:
    """Delete the sign-ins of instances, including pending ones."""
    digests = [compute_digest(grant_key(instance_id)) for instance_id in instance_ids]
    for batch in batches(digests):
        connection.execute(delete(tables.auth_grants).where(tables.auth_grants.c.digest.in_(batch)))
        connection.execute(delete(tables.auth_pending).where(tables.auth_pending.c.key_digest.in_(batch)))


def delete_tool_approvals(connection: Connection, condition: Any) -> None:
    """Delete the standing approvals for tools of matching instances, and calls of programs that need one.

    They name the slug, under which the same person may connect another server later.
    """
    prefix = literal("@") + tables.instances.c.user_id + "/" + tables.instances.c.slug + "/"
    is_open_call = tables.approvals.c.chat_id.is_(None) & tables.approvals.c.answered_at.is_(None)
    for table, is_affected in ((tables.grants, true()), (tables.approvals, is_open_call)):
        is_of_instance = func.substr(table.c.tool, 1, func.length(prefix)) == prefix
        is_own = table.c.owner == tables.instances.c.user_id
        rows = is_affected & exists().where(condition, is_own, is_of_instance)
        connection.execute(delete(table).where(rows))


def delete_server_rows(connection: Connection, server_id: str) -> bool:
    """Delete a server with its instances. Return False if it does not exist."""
    is_of_server = tables.instances.c.server_id == server_id
    delete_grant_rows(connection, find_instance_ids(connection, is_of_server))
    delete_tool_approvals(connection, is_of_server)
    return connection.execute(delete(tables.servers).where(tables.servers.c.id == server_id)).rowcount > 0


def delete_credential_rows(connection: Connection, user_id: str) -> None:
    """Delete the API keys and sign-ins of a user. The instances stay, with the reason."""
    _delete_sign_in_rows(connection, user_id)
    is_users = tables.instances.c.user_id == user_id
    never_connected = InstanceState.PENDING.value
    public_choice = (
        select(tables.auth_choices.c.id)
        .where(
            tables.auth_choices.c.server_id == tables.instances.c.server_id,
            tables.auth_choices.c.id == tables.instances.c.choice_id,
        )
        .where(tables.auth_choices.c.kind == AuthKind.PUBLIC.value)
    )
    had_credentials = is_users & (tables.instances.c.state != never_connected) & ~exists(public_choice)
    needs_sign_in = {
        "state": InstanceState.NEEDS_REAUTH.value,
        "reason": "your password was reset with a link",
    }
    # Instances that never connected stay pending, and public ones keep working without credentials.
    connection.execute(update(tables.instances).where(had_credentials).values(**needs_sign_in))
    connection.execute(update(tables.instances).where(is_users).values(value=None))


def _delete_sign_in_rows(connection: Connection, user_id: str) -> None:
    delete_grant_rows(connection, find_instance_ids(connection, tables.instances.c.user_id == user_id))
    # Sign-ins to servers in configuration files have keys that begin with the user.
    key_prefix = f"user:{user_id}:"
    for table in (tables.auth_grants, tables.auth_pending):
        connection.execute(delete(table).where(_starts_with(table.c.key, key_prefix)))


def delete_user_rows(connection: Connection, user_id: str) -> None:
    """Delete a user with all dependent rows, except the audit log."""
    _delete_sign_in_rows(connection, user_id)
    connection.execute(
        delete(tables.catalogues).where(
            or_(
                _starts_with(tables.catalogues.c.server_id, f"@{user_id}/"),
                tables.catalogues.c.scope == f"principal:{user_id}",
            )
        )
    )
    for table in (
        tables.agents,
        tables.chats,
        tables.attachments,
        tables.approvals,
        tables.grants,
        tables.questions,
    ):
        connection.execute(delete(table).where(table.c.owner == user_id))
    connection.execute(delete(tables.results).where(tables.results.c.principal == user_id))
    connection.execute(delete(tables.users).where(tables.users.c.id == user_id))


def _starts_with(column: Any, prefix: str) -> Any:
    """Compare a prefix. Not with LIKE, which ignores case in SQLite and has special characters."""
    return func.substr(column, 1, len(prefix)) == prefix
