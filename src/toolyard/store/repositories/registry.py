"""Storage of registry servers and of users' instances, with encrypted client secrets and API keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, update

from toolyard.errors import NotFound, Taken
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL, Signals
from toolyard.store.repositories.cascades import (
    delete_grant_rows,
    delete_server_rows,
    delete_tool_approvals,
    find_instance_ids,
)
from toolyard.store.repositories.rows import RecordMapper, require_below_limit
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import insert_if_absent, raise_if_violated
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction, transaction_by_key
from toolyard.store.sql.stored_values import clean_text, fold_case
from toolyard.store.sql.tables import auth_choices, instances, servers
from toolyard.types.registry import (
    AuthChoice,
    AuthKind,
    Instance,
    InstanceName,
    InstanceState,
    RegistryServer,
)

__all__ = ["SqlRegistryStorage"]

_SERVER_MAPPER = RecordMapper(RegistryServer, servers)
_CHOICE_MAPPER = RecordMapper(AuthChoice, auth_choices)
_INSTANCE_MAPPER = RecordMapper(Instance, instances)
_SELECT_CHOICES = _CHOICE_MAPPER.select.order_by(auth_choices.c.server_id, auth_choices.c.position)


def _load_servers(rows: Iterable[Any], choices: Iterable[Any], cipher: Cipher) -> list[RegistryServer]:
    by_server: dict[str, list[AuthChoice]] = {}
    for row in choices:
        by_server.setdefault(row.server_id, []).append(_CHOICE_MAPPER.load(row, cipher))
    return [_SERVER_MAPPER.load(row, cipher, choices=tuple(by_server.get(row.id, ()))) for row in rows]


def _changeable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that an update may change."""
    fixed = ("id", "user_id", "server_id", "created_at")
    return {name: value for name, value in values.items() if name not in fixed}


def _clean_reason(reason: str | None) -> str | None:
    """Make a reason storable, since it often contains text of a server."""
    return None if reason is None else clean_text(reason, 10_000)


_SELECT_USER_INSTANCES = _INSTANCE_MAPPER.select.where(instances.c.user_id == bindparam("user"))
_USER_SERVER_IDS = select(instances.c.server_id).where(instances.c.user_id == bindparam("user"))
_SELECT_USER_SERVERS = _SERVER_MAPPER.select.where(servers.c.id.in_(_USER_SERVER_IDS))
_SELECT_USER_CHOICES = _SELECT_CHOICES.where(auth_choices.c.server_id.in_(_USER_SERVER_IDS))


class SqlRegistryStorage(Repository):
    """Storage of servers and instances, shared by all replicas, which are notified of every change.

    Client secrets and values are encrypted.
    """

    def __init__(self, executor: DatabaseExecutor, cipher: Cipher, signals: Signals) -> None:
        super().__init__(executor)
        self._cipher = cipher
        self._signals = signals

    # Servers.

    async def list_servers(self) -> Sequence[RegistryServer]:
        """Return all servers, sorted by name."""

        def read_servers(connection: Connection) -> list[RegistryServer]:
            rows = connection.execute(_SERVER_MAPPER.select).all()
            return _load_servers(rows, connection.execute(_SELECT_CHOICES).all(), self._cipher)

        all_servers = await self._executor.read(read_servers)
        return sorted(all_servers, key=lambda server: (fold_case(server.name), server.name))

    async def get_server(self, server_id: str) -> RegistryServer | None:
        return await self._executor.read_or_default(
            lambda connection: self._read_server(connection, server_id), None
        )

    @transaction
    def add_server(self, connection: Connection, server: RegistryServer) -> None:
        """Add a server. Raises Taken if another server has the name."""
        if not insert_if_absent(connection, servers, self._server_values(server)):
            raise _name_taken_error(server.name)
        self._add_choices(connection, server)
        self._notify_changed(connection, server.id)

    @transaction
    def save_server(self, connection: Connection, server: RegistryServer) -> bool:
        """Replace a server and its choices (matched by id); return False if it no longer exists.

        Choices that are not in the new version are deleted; instances that used one lose their credentials
        and become pending. Raises Taken.
        """
        statement = (
            update(servers).where(servers.c.id == server.id).values(_changeable(self._server_values(server)))
        )
        with raise_if_violated("unique", _name_taken_error(server.name)):
            if not connection.execute(statement).rowcount:
                return False
        connection.execute(delete(auth_choices).where(auth_choices.c.server_id == server.id))
        self._add_choices(connection, server)
        remaining = [choice.id for choice in server.choices]
        uses_removed_choice = (instances.c.server_id == server.id) & instances.c.choice_id.not_in(remaining)
        _reset_sign_ins(connection, uses_removed_choice, "the sign-in method of this instance was removed")
        self._notify_changed(connection, server.id)
        return True

    @transaction_by_key(False)
    def delete_server(self, connection: Connection, server_id: str) -> bool:
        """Delete a server with its instances and their sign-ins; return False if it does not exist."""
        self._notify_changed(connection, server_id)
        return delete_server_rows(connection, server_id)

    async def count_instances(self) -> dict[str, int]:
        """Return the number of instances of each server, by server id."""
        query = select(instances.c.server_id, func.count()).group_by(instances.c.server_id)
        return {row[0]: row[1] for row in await self._executor.fetch_rows(query)}

    async def list_instance_choices(self, server_id: str) -> Mapping[str, str]:
        """Return the choice id of every instance of a server, for all users, by instance id."""
        query = select(instances.c.id, instances.c.choice_id).where(instances.c.server_id == server_id)
        return {row.id: row.choice_id for row in await self._executor.fetch_rows(query)}

    def _notify_changed(self, connection: Connection, changed_id: str) -> None:
        self._signals.notify(connection, REGISTRY_CHANNEL, changed_id)

    def _read_server(self, connection: Connection, server_id: str) -> RegistryServer | None:
        rows = connection.execute(_SERVER_MAPPER.select.where(servers.c.id == server_id)).all()
        choices = connection.execute(_SELECT_CHOICES.where(auth_choices.c.server_id == server_id)).all()
        return next(iter(_load_servers(rows, choices, self._cipher)), None)

    def _add_choices(self, connection: Connection, server: RegistryServer) -> None:
        rows = [
            _CHOICE_MAPPER.values(choice, self._cipher, server_id=server.id, position=position)
            for position, choice in enumerate(server.choices)
        ]
        if rows:
            connection.execute(auth_choices.insert(), rows)

    def _server_values(self, server: RegistryServer) -> dict[str, Any]:
        return _SERVER_MAPPER.values(server, self._cipher, name_key=fold_case(server.name))

    # Instances.

    async def list_instances(self, user_id: str) -> Sequence[tuple[Instance, RegistryServer]]:
        """Return the instances of a user, sorted by slug, each with its server."""

        def read_instances(connection: Connection) -> list[tuple[Instance, RegistryServer]]:
            rows = connection.execute(_SELECT_USER_INSTANCES, {"user": user_id}).all()
            if not rows:
                return []
            server_rows = connection.execute(_SELECT_USER_SERVERS, {"user": user_id}).all()
            choices = connection.execute(_SELECT_USER_CHOICES, {"user": user_id}).all()
            by_id = {server.id: server for server in _load_servers(server_rows, choices, self._cipher)}
            # Reads have no transaction: a server may have been deleted since the first query, with its
            # instances.
            user_instances = (_INSTANCE_MAPPER.load(row, self._cipher) for row in rows)
            return [
                (instance, by_id[instance.server_id])
                for instance in user_instances
                if instance.server_id in by_id
            ]

        pairs = await self._executor.read_or_default(read_instances, ())
        return sorted(pairs, key=lambda pair: (fold_case(pair[0].slug), pair[0].slug))

    async def list_instance_names(self, owners: Collection[str]) -> Sequence[InstanceName]:
        """Return the names of all instances of some users."""
        columns = (instances.c.id, instances.c.user_id, instances.c.slug, instances.c.name)
        query = select(*columns).where(instances.c.user_id.in_(owners))
        return await self._executor.fetch_all(query, lambda row: InstanceName(*row))

    async def get_instance(self, user_id: str, instance_id: str) -> tuple[Instance, RegistryServer] | None:
        """Return an instance of this user with its server; None if it belongs to another user."""

        def read_instance(connection: Connection) -> tuple[Instance, RegistryServer] | None:
            row = connection.execute(
                _INSTANCE_MAPPER.select.where(_owner_condition(user_id, instance_id))
            ).one_or_none()
            if row is None:
                return None
            instance = _INSTANCE_MAPPER.load(row, self._cipher)
            server = self._read_server(connection, instance.server_id)
            return None if server is None else (instance, server)

        return await self._executor.read_or_default(read_instance, None)

    @transaction
    def add_instance(self, connection: Connection, instance: Instance, *, max_per_user: int = 0) -> None:
        """Add an instance.

        Raises Taken if the user has the slug already, ignoring case, NotFound if the server or choice no
        longer exists, and LimitReached if the user has ``max_per_user`` instances; 0 means no limit.
        """
        own = instances.c.user_id == instance.user_id
        require_below_limit(connection, own, max_per_user, "instance", "instance_limit")
        _require_choice(connection, instance)
        with raise_if_violated("reference", NotFound("the user no longer exists")):
            if not insert_if_absent(connection, instances, self._instance_values(instance)):
                raise _slug_taken_error(instance.slug)
        self._notify_changed(connection, instance.id)

    @transaction
    def save_instance(self, connection: Connection, instance: Instance) -> bool:
        """Replace an instance, except its user and server; return False if it no longer exists.

        If the choice changes, its sign-in and pending sign-ins are deleted; if the slug changes, the
        approvals for its tools. Raises Taken or NotFound.
        """
        is_instance = _owner_condition(instance.user_id, instance.id) & (
            instances.c.server_id == instance.server_id
        )
        old_choice_id = connection.execute(select(instances.c.choice_id).where(is_instance)).scalar()
        if old_choice_id is None:
            return False
        _require_choice(connection, instance)
        if old_choice_id != instance.choice_id:
            delete_grant_rows(connection, [instance.id])
        delete_tool_approvals(connection, is_instance & (instances.c.slug != instance.slug))
        values = _changeable(self._instance_values(instance))
        with raise_if_violated("unique", _slug_taken_error(instance.slug)):
            saved = connection.execute(update(instances).where(is_instance).values(values)).rowcount > 0
        self._notify_changed(connection, instance.id)
        return saved

    def _instance_values(self, instance: Instance) -> dict[str, Any]:
        more = {"slug_key": fold_case(instance.slug), "reason": _clean_reason(instance.reason)}
        return _INSTANCE_MAPPER.values(instance, self._cipher, **more)

    async def set_instance_state(self, instance_id: str, state: InstanceState, reason: str | None) -> None:
        """Store the state of an instance; do nothing if it no longer exists."""
        statement = update(instances).where(instances.c.id == instance_id)
        statement = statement.values(state=state.value, reason=_clean_reason(reason))
        await self._signals.execute(statement, REGISTRY_CHANNEL, instance_id)

    @transaction_by_key(False)
    def delete_instance(self, connection: Connection, user_id: str, instance_id: str) -> bool:
        """Delete an instance with its sign-ins, pending ones too, and the approvals for its tools.

        Return False if it does not exist.
        """
        is_instance = _owner_condition(user_id, instance_id)
        delete_tool_approvals(connection, is_instance)
        if not connection.execute(delete(instances).where(is_instance)).rowcount:
            return False
        delete_grant_rows(connection, [instance_id])
        self._notify_changed(connection, instance_id)
        return True

    @transaction_by_key(None)
    def reset_instances(self, connection: Connection, server_id: str) -> None:
        """Delete the sign-ins and values of all instances of a server, and make these instances pending; also
        delete the approvals for its tools.

        Used if the server's URL changes to another host. Instances without credentials do not become pending.
        """
        public_choices = select(auth_choices.c.id).where(
            auth_choices.c.server_id == server_id, auth_choices.c.kind == AuthKind.PUBLIC.value
        )
        uses_credentials = (instances.c.server_id == server_id) & instances.c.choice_id.not_in(public_choices)
        _reset_sign_ins(connection, uses_credentials, "the address of the server changed")
        delete_tool_approvals(connection, instances.c.server_id == server_id)
        self._notify_changed(connection, server_id)


def _reset_sign_ins(connection: Connection, condition: Any, reason: str) -> None:
    """Delete the credentials of instances, and set them to pending so that their users sign in again."""
    delete_grant_rows(connection, find_instance_ids(connection, condition))
    pending = {"value": None, "state": InstanceState.PENDING.value, "reason": reason}
    connection.execute(update(instances).where(condition).values(**pending))


def _require_choice(connection: Connection, instance: Instance) -> None:
    """Raise NotFound unless the server offers the sign-in choice of the instance.

    The server's row is locked, so that the choice cannot be removed before the instance is written.
    """
    locked_server = select(servers.c.id).where(servers.c.id == instance.server_id).with_for_update(read=True)
    offered_choice = select(auth_choices.c.id).where(
        auth_choices.c.server_id == instance.server_id, auth_choices.c.id == instance.choice_id
    )
    if connection.execute(locked_server).one_or_none() is None:
        raise NotFound("the server no longer exists")
    if connection.execute(offered_choice).one_or_none() is None:
        raise NotFound("the server no longer offers this sign-in method", hint="choose another one")


def _owner_condition(user_id: str, instance_id: str) -> Any:
    return (instances.c.id == instance_id) & (instances.c.user_id == user_id)


def _name_taken_error(name: str) -> Taken:
    return Taken(
        f"a server named '{name}' already exists",
        field="name",
        hint="names must differ by more than case",
    )


def _slug_taken_error(slug: str) -> Taken:
    return Taken(f"you already have an instance '{slug}'", field="slug", hint="choose another slug")
