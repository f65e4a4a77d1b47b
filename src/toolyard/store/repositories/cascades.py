"""Deleting what belongs to somebody or something, with the sign-ins that no foreign key reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, exists, func, or_, select, update

from toolyard.store.sql.row_digests import compute_digest
from toolyard.store.sql.tables import (
    approvals,
    auth_choices,
    auth_grants,
    auth_pending,
    catalogues,
    chats,
    grants,
    instances,
    results,
    servers,
    users,
)
from toolyard.types.registry import AuthKind, InstanceState, grant_key

__all__ = [
    "delete_credential_rows",
    "delete_grant_rows",
    "delete_server_rows",
    "delete_user_rows",
    "find_instance_ids",
]

_MAX_IDS_PER_QUERY = 500


def find_instance_ids(connection: Connection, condition: Any) -> Sequence[str]:
    """The ids of instances."""
    return connection.execute(select(instances.c.id).where(condition)).scalars().all()


def delete_grant_rows(connection: Connection, instance_ids: Sequence[str]) -> None:
    """Drop the sign-ins of instances, and those that were begun."""
    digests = [compute_digest(grant_key(instance_id)) for instance_id in instance_ids]
    for start in range(0, len(digests), _MAX_IDS_PER_QUERY):
        some = digests[start : start + _MAX_IDS_PER_QUERY]
        connection.execute(delete(auth_grants).where(auth_grants.c.digest.in_(some)))
        connection.execute(delete(auth_pending).where(auth_pending.c.key_digest.in_(some)))


def delete_server_rows(connection: Connection, server_id: str) -> bool:
    """With its instances. False: there is none."""
    delete_grant_rows(connection, find_instance_ids(connection, instances.c.server_id == server_id))
    return connection.execute(delete(servers).where(servers.c.id == server_id)).rowcount > 0


def delete_credential_rows(connection: Connection, user_id: str, reason: str) -> None:
    """Remove the keys and sign-ins that a user stored for servers. Their instances stay and say why."""
    _delete_sign_in_rows(connection, user_id)
    theirs = instances.c.user_id == user_id
    never_connected = InstanceState.PENDING.value
    public = (
        select(auth_choices.c.id)
        .where(auth_choices.c.server_id == instances.c.server_id, auth_choices.c.id == instances.c.choice_id)
        .where(auth_choices.c.kind == AuthKind.PUBLIC.value)
    )
    connected = theirs & (instances.c.state != never_connected) & ~exists(public)
    asking = {"state": InstanceState.NEEDS_REAUTH.value, "reason": reason}
    connection.execute(update(instances).where(connected).values(**asking))
    connection.execute(update(instances).where(theirs).values(value=None))


def _delete_sign_in_rows(connection: Connection, user_id: str) -> None:
    delete_grant_rows(connection, find_instance_ids(connection, instances.c.user_id == user_id))
    # Sign-ins to servers of a configuration file, which each person has for themselves.
    theirs = f"user:{user_id}:"
    for table in (auth_grants, auth_pending):
        connection.execute(delete(table).where(_starts_with(table.c.key, theirs)))


def delete_user_rows(connection: Connection, user_id: str) -> None:
    """With everything of theirs; the audit log stays."""
    _delete_sign_in_rows(connection, user_id)
    connection.execute(
        delete(catalogues).where(
            or_(
                _starts_with(catalogues.c.server_id, f"@{user_id}/"),
                catalogues.c.scope == f"principal:{user_id}",
            )
        )
    )
    for table in (chats, approvals, grants):
        connection.execute(delete(table).where(table.c.owner == user_id))
    connection.execute(delete(results).where(results.c.principal == user_id))
    connection.execute(delete(users).where(users.c.id == user_id))


def _starts_with(column: Any, prefix: str) -> Any:
    """Not LIKE: that is blind for case in one of the databases, and has characters of its own."""
    return func.substr(column, 1, len(prefix)) == prefix
