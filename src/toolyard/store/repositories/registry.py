"""Servers that an admin entered, and everybody's instances of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from toolyard.registry.errors import NotFound, Taken
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL as SERVERS_CHANGED
from toolyard.store.change_feed.signals import Signals
from toolyard.store.repositories.cascades import delete_grant_rows, delete_server_rows, find_instance_ids
from toolyard.store.repositories.registry_rows import (
    SELECT_CHOICES,
    SELECT_INSTANCES,
    SELECT_SERVERS,
    choice_rows,
    clean_reason,
    instance_from_row,
    instance_values,
    server_values,
    servers_from_rows,
)
from toolyard.store.sql.casefold import fold_case
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import insert_if_absent, violated_constraint
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.tables import auth_choices, instances, servers
from toolyard.types.registry import AuthKind, Instance, InstanceState, RegistryServer

__all__ = ["SqlRegistryStorage"]

_SELECT_USER_INSTANCES = SELECT_INSTANCES.where(instances.c.user_id == bindparam("user"))
_USER_SERVER_IDS = select(instances.c.server_id).where(instances.c.user_id == bindparam("user"))
_SELECT_USER_SERVERS = SELECT_SERVERS.where(servers.c.id.in_(_USER_SERVER_IDS))
_SELECT_USER_CHOICES = SELECT_CHOICES.where(auth_choices.c.server_id.in_(_USER_SERVER_IDS))


class SqlRegistryStorage:
    """A RegistryStorage. Every change is told to all replicas."""

    def __init__(self, executor: DatabaseExecutor, cipher: Cipher, signals: Signals) -> None:
        self._executor = executor
        self._cipher = cipher
        self._signals = signals

    # Servers.

    async def servers(self) -> Sequence[RegistryServer]:
        """See RegistryStorage."""

        def work(connection: Connection) -> list[RegistryServer]:
            found = connection.execute(SELECT_SERVERS).all()
            return servers_from_rows(found, connection.execute(SELECT_CHOICES).all(), self._cipher)

        found = await self._executor.read(work)
        return sorted(found, key=lambda server: (fold_case(server.name), server.name))

    async def server(self, server_id: str) -> RegistryServer | None:
        """See RegistryStorage."""
        return await self._executor.read_or_default(
            lambda connection: self._read_server(connection, server_id), None
        )

    async def add_server(self, server: RegistryServer) -> None:
        """See RegistryStorage."""

        def work(connection: Connection) -> None:
            if not insert_if_absent(connection, servers, {"id": server.id, **server_values(server)}):
                raise _name_taken_error(server.name)
            self._add_choices(connection, server)
            self._notify_changed(connection, server.id)

        await self._executor.write(work)

    async def save_server(self, server: RegistryServer) -> bool:
        """See RegistryStorage. What was given or signed in for a choice that is gone is forgotten."""

        def work(connection: Connection) -> bool:
            saving = update(servers).where(servers.c.id == server.id).values(**server_values(server))
            try:
                if not connection.execute(saving).rowcount:
                    return False
            except IntegrityError as error:
                if violated_constraint(error) != "unique":
                    raise
                raise _name_taken_error(server.name) from None
            connection.execute(delete(auth_choices).where(auth_choices.c.server_id == server.id))
            self._add_choices(connection, server)
            kept = [choice.id for choice in server.choices]
            gone = (instances.c.server_id == server.id) & instances.c.choice_id.not_in(kept)
            _reset_sign_ins(connection, gone, "the way of signing in that it used was removed")
            self._notify_changed(connection, server.id)
            return True

        return await self._executor.write(work)

    async def delete_server(self, server_id: str) -> bool:
        """See RegistryStorage."""

        def work(connection: Connection) -> bool:
            self._notify_changed(connection, server_id)
            return delete_server_rows(connection, server_id)

        return await self._executor.change(work, False)

    async def count_instances(self) -> dict[str, int]:
        """See RegistryStorage."""
        query = select(instances.c.server_id, func.count()).group_by(instances.c.server_id)
        found = await self._executor.read(lambda connection: connection.execute(query).all())
        return {row[0]: row[1] for row in found}

    async def list_instance_choices(self, server_id: str) -> Mapping[str, str]:
        """See RegistryStorage."""
        query = select(instances.c.id, instances.c.choice_id).where(instances.c.server_id == server_id)
        found = await self._executor.read_or_default(lambda connection: connection.execute(query).all(), ())
        return {row.id: row.choice_id for row in found}

    def _notify_changed(self, connection: Connection, changed_id: str) -> None:
        self._signals.notify(connection, SERVERS_CHANGED, changed_id)

    def _read_server(self, connection: Connection, server_id: str) -> RegistryServer | None:
        found = connection.execute(SELECT_SERVERS.where(servers.c.id == server_id)).all()
        choices = connection.execute(SELECT_CHOICES.where(auth_choices.c.server_id == server_id)).all()
        return next(iter(servers_from_rows(found, choices, self._cipher)), None)

    def _add_choices(self, connection: Connection, server: RegistryServer) -> None:
        if rows := choice_rows(server, self._cipher):
            connection.execute(auth_choices.insert(), rows)

    # Instances.

    async def instances(self, user_id: str) -> Sequence[tuple[Instance, RegistryServer]]:
        """See RegistryStorage."""

        def work(connection: Connection) -> list[tuple[Instance, RegistryServer]]:
            mine = connection.execute(_SELECT_USER_INSTANCES, {"user": user_id}).all()
            if not mine:
                return []
            found = connection.execute(_SELECT_USER_SERVERS, {"user": user_id}).all()
            choices = connection.execute(_SELECT_USER_CHOICES, {"user": user_id}).all()
            by_id = {server.id: server for server in servers_from_rows(found, choices, self._cipher)}
            # A server may have been deleted since the first query, and its instances with it.
            there = (one for row in mine if (one := instance_from_row(row, self._cipher)).server_id in by_id)
            return [(instance, by_id[instance.server_id]) for instance in there]

        found = await self._executor.read_or_default(work, ())
        return sorted(found, key=lambda pair: (fold_case(pair[0].slug), pair[0].slug))

    async def instance(self, user_id: str, instance_id: str) -> tuple[Instance, RegistryServer] | None:
        """See RegistryStorage."""

        def work(connection: Connection) -> tuple[Instance, RegistryServer] | None:
            row = connection.execute(
                SELECT_INSTANCES.where(_owner_condition(user_id, instance_id))
            ).one_or_none()
            if row is None:
                return None
            instance = instance_from_row(row, self._cipher)
            server = self._read_server(connection, instance.server_id)
            return None if server is None else (instance, server)

        return await self._executor.read_or_default(work, None)

    async def add_instance(self, instance: Instance) -> None:
        """See RegistryStorage."""

        def work(connection: Connection) -> None:
            _require_choice(connection, instance)
            values = {
                "id": instance.id,
                "user_id": instance.user_id,
                "server_id": instance.server_id,
                "created_at": instance.created_at,
                **instance_values(instance, self._cipher),
            }
            try:
                if not insert_if_absent(connection, instances, values):
                    raise _slug_taken_error(instance.slug)
            except IntegrityError as error:
                if violated_constraint(error) != "reference":
                    raise
                raise NotFound("there is no such user any more") from None
            self._notify_changed(connection, instance.id)

        await self._executor.write(work)

    async def save_instance(self, instance: Instance) -> bool:
        """See RegistryStorage."""

        def work(connection: Connection) -> bool:
            same = _owner_condition(instance.user_id, instance.id) & (
                instances.c.server_id == instance.server_id
            )
            before = connection.execute(select(instances.c.choice_id).where(same)).scalar()
            if before is None:
                return False
            _require_choice(connection, instance)
            if before != instance.choice_id:
                delete_grant_rows(connection, [instance.id])
            try:
                saving = update(instances).where(same).values(**instance_values(instance, self._cipher))
                saved = connection.execute(saving).rowcount > 0
            except IntegrityError as error:
                if violated_constraint(error) != "unique":
                    raise
                raise _slug_taken_error(instance.slug) from None
            self._notify_changed(connection, instance.id)
            return saved

        return await self._executor.write(work)

    async def set_instance_state(self, instance_id: str, state: InstanceState, reason: str | None) -> None:
        """See RegistryStorage."""
        noting = update(instances).where(instances.c.id == instance_id)
        noting = noting.values(state=state.value, reason=clean_reason(reason))

        def work(connection: Connection) -> None:
            if connection.execute(noting).rowcount:
                self._notify_changed(connection, instance_id)

        await self._executor.change(work, None)

    async def delete_instance(self, user_id: str, instance_id: str) -> bool:
        """See RegistryStorage."""

        def work(connection: Connection) -> bool:
            if not connection.execute(
                delete(instances).where(_owner_condition(user_id, instance_id))
            ).rowcount:
                return False
            delete_grant_rows(connection, [instance_id])
            self._notify_changed(connection, instance_id)
            return True

        return await self._executor.change(work, False)

    async def reset_instances(self, server_id: str) -> None:
        """See RegistryStorage."""

        def work(connection: Connection) -> None:
            public = select(auth_choices.c.id).where(
                auth_choices.c.server_id == server_id, auth_choices.c.kind == AuthKind.PUBLIC.value
            )
            signed_in = (instances.c.server_id == server_id) & instances.c.choice_id.not_in(public)
            _reset_sign_ins(connection, signed_in, "the address of its server changed")
            self._notify_changed(connection, server_id)

        await self._executor.change(work, None)


def _reset_sign_ins(connection: Connection, condition: Any, reason: str) -> None:
    """Forget how instances sign in: their users start again."""
    delete_grant_rows(connection, find_instance_ids(connection, condition))
    pending = {"value": None, "state": InstanceState.PENDING.value, "reason": reason}
    connection.execute(update(instances).where(condition).values(**pending))


def _require_choice(connection: Connection, instance: Instance) -> None:
    """The server's row is held, so that nobody takes the choice away before the instance is written."""
    held = select(servers.c.id).where(servers.c.id == instance.server_id).with_for_update(read=True)
    offered = select(auth_choices.c.id).where(
        auth_choices.c.server_id == instance.server_id, auth_choices.c.id == instance.choice_id
    )
    if connection.execute(held).one_or_none() is None:
        raise NotFound("there is no such server any more")
    if connection.execute(offered).one_or_none() is None:
        raise NotFound("the server no longer offers this way of signing in", hint="choose another one")


def _owner_condition(user_id: str, instance_id: str) -> Any:
    return (instances.c.id == instance_id) & (instances.c.user_id == user_id)


def _name_taken_error(name: str) -> Taken:
    return Taken(f"there is a server '{name}' already", field="name", hint="names differ in more than case")


def _slug_taken_error(slug: str) -> Taken:
    return Taken(f"you have an instance '{slug}' already", field="slug", hint="choose another slug")
