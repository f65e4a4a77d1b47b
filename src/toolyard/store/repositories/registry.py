"""Storage of registry servers and of users' instances, with encrypted client secrets and API keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, bindparam, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from toolyard.registry.errors import NotFound, Taken
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL, Signals
from toolyard.store.repositories.cascades import delete_grant_rows, delete_server_rows, find_instance_ids
from toolyard.store.repositories.row_limits import require_room
from toolyard.store.sql.casefold import fold_case
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.columns import clean_text
from toolyard.store.sql.dialects import insert_if_absent, violated_constraint
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.tables import auth_choices, instances, servers
from toolyard.types.registry import (
    AuthChoice,
    AuthKind,
    Instance,
    InstanceState,
    RegistrationMethod,
    RegistryServer,
)
from toolyard.types.server import Trust

__all__ = [
    "SELECT_CHOICES",
    "SELECT_INSTANCES",
    "SELECT_SERVERS",
    "SqlRegistryStorage",
    "choice_rows",
    "clean_reason",
    "instance_from_row",
    "instance_values",
    "server_values",
    "servers_from_rows",
]


# One page may show a thousand instances of a user. So rows are unpacked by position, and enums are looked up
# in dictionaries: calling an enum class costs more than the rest of the conversion.
_AUTH_KINDS_BY_VALUE = {kind.value: kind for kind in AuthKind}
_REGISTRATIONS_BY_VALUE = {way.value: way for way in RegistrationMethod}
_TRUSTS_BY_VALUE = {trust.value: trust for trust in Trust}
_STATES_BY_VALUE = {state.value: state for state in InstanceState}


def _select_columns(table: Table, names: str) -> Select[*tuple[Any, ...]]:
    return select(*(table.c[name] for name in names.split()))


SELECT_SERVERS = _select_columns(
    servers,
    "id name url transport trust enabled description private_addresses allow_tools deny_tools"
    " created_at updated_at",
)
SELECT_CHOICES = _select_columns(
    auth_choices,
    "server_id id kind label place key registration client_id client_secret scopes resource legacy_discovery"
    " issuer issuer_redirect",
).order_by(auth_choices.c.server_id, auth_choices.c.position)
SELECT_INSTANCES = _select_columns(
    instances,
    "id user_id server_id choice_id slug name enabled tool_filter value state reason created_at updated_at",
)


# Servers.


def servers_from_rows(rows: Iterable[Any], choices: Iterable[Any], cipher: Cipher) -> list[RegistryServer]:
    """Build servers from rows of ``SELECT_SERVERS`` and ``SELECT_CHOICES``."""
    by_server: dict[str, list[AuthChoice]] = {}
    for row in choices:
        by_server.setdefault(row[0], []).append(_choice_from_row(row, cipher))
    return [_server_from_row(row, tuple(by_server.get(row[0], ()))) for row in rows]


def server_values(server: RegistryServer) -> dict[str, Any]:
    """Return the columns of a server, without its id and choices."""
    return {
        "name": server.name,
        "name_key": fold_case(server.name),
        "url": server.url,
        "transport": server.transport,
        "trust": server.trust.value,
        "enabled": server.enabled,
        "description": server.description,
        "private_addresses": server.private_addresses,
        "allow_tools": server.allow_tools,
        "deny_tools": server.deny_tools,
        "created_at": server.created_at,
        "updated_at": server.updated_at,
    }


def choice_rows(server: RegistryServer, cipher: Cipher) -> list[dict[str, Any]]:
    """Return a row for each sign-in choice of a server."""
    return [
        {
            "server_id": server.id,
            "id": choice.id,
            "position": position,
            "kind": choice.kind.value,
            "label": choice.label,
            "place": choice.place,
            "key": choice.key,
            "registration": choice.registration.value,
            "client_id": choice.client_id,
            "client_secret": cipher.encrypt_text(
                choice.client_secret, _client_secret_associated_data(server.id, choice.id)
            ),
            "scopes": choice.scopes,
            "resource": choice.resource,
            "legacy_discovery": choice.legacy_discovery,
            "issuer": choice.issuer,
            "issuer_redirect": choice.issuer_redirect,
        }
        for position, choice in enumerate(server.choices)
    ]


def _server_from_row(row: Any, choices: tuple[AuthChoice, ...]) -> RegistryServer:
    server_id, name, url, transport, trust, enabled, description, *more = row
    private_addresses, allow_tools, deny_tools, created_at, updated_at = more
    return RegistryServer(
        id=server_id,
        name=name,
        url=url,
        transport=transport,
        trust=_TRUSTS_BY_VALUE[trust],
        enabled=enabled,
        description=description,
        private_addresses=private_addresses,
        allow_tools=allow_tools,
        deny_tools=deny_tools,
        choices=choices,
        created_at=created_at,
        updated_at=updated_at,
    )


def _choice_from_row(row: Any, cipher: Cipher) -> AuthChoice:
    server_id, choice_id, kind, label, place, key, registration, *more = row
    client_id, client_secret, scopes, resource, legacy_discovery, issuer, issuer_redirect = more
    return AuthChoice(
        id=choice_id,
        kind=_AUTH_KINDS_BY_VALUE[kind],
        label=label,
        place=place,
        key=key,
        registration=_REGISTRATIONS_BY_VALUE[registration],
        client_id=client_id,
        client_secret=client_secret
        and cipher.decrypt_text(client_secret, _client_secret_associated_data(server_id, choice_id)),
        scopes=scopes,
        resource=resource,
        legacy_discovery=legacy_discovery,
        issuer=issuer,
        issuer_redirect=issuer_redirect,
    )


def _client_secret_associated_data(server_id: str, choice_id: str) -> str:
    return f"auth_choices.client_secret:{server_id}:{choice_id}"


# Instances.


def instance_from_row(row: Any, cipher: Cipher) -> Instance:
    """Build an instance from a row of ``SELECT_INSTANCES``."""
    instance_id, user_id, server_id, choice_id, slug, name, enabled, *more = row
    tool_filter, value, state, reason, created_at, updated_at = more
    return Instance(
        id=instance_id,
        user_id=user_id,
        server_id=server_id,
        choice_id=choice_id,
        slug=slug,
        name=name,
        enabled=enabled,
        tool_filter=tool_filter,
        value=value and cipher.decrypt_text(value, _value_associated_data(instance_id)),
        state=_STATES_BY_VALUE[state],
        reason=reason,
        created_at=created_at,
        updated_at=updated_at,
    )


def instance_values(instance: Instance, cipher: Cipher) -> dict[str, Any]:
    """Return the columns of an instance that may change."""
    return {
        "choice_id": instance.choice_id,
        "slug": instance.slug,
        "slug_key": fold_case(instance.slug),
        "name": instance.name,
        "enabled": instance.enabled,
        "tool_filter": instance.tool_filter,
        "value": cipher.encrypt_text(instance.value, _value_associated_data(instance.id)),
        "state": instance.state.value,
        "reason": clean_reason(instance.reason),
        "updated_at": instance.updated_at,
    }


def clean_reason(reason: str | None) -> str | None:
    """Make a reason storable, since it often contains text of a server."""
    return None if reason is None else clean_text(reason, 10_000)


def _value_associated_data(instance_id: str) -> str:
    return f"instances.value:{instance_id}"


_SELECT_USER_INSTANCES = SELECT_INSTANCES.where(instances.c.user_id == bindparam("user"))
_USER_SERVER_IDS = select(instances.c.server_id).where(instances.c.user_id == bindparam("user"))
_SELECT_USER_SERVERS = SELECT_SERVERS.where(servers.c.id.in_(_USER_SERVER_IDS))
_SELECT_USER_CHOICES = SELECT_CHOICES.where(auth_choices.c.server_id.in_(_USER_SERVER_IDS))


class SqlRegistryStorage:
    """RegistryStorage in SQL tables. Notifies all replicas of every change."""

    def __init__(self, executor: DatabaseExecutor, cipher: Cipher, signals: Signals) -> None:
        self._executor = executor
        self._cipher = cipher
        self._signals = signals

    # Servers.

    async def list_servers(self) -> Sequence[RegistryServer]:
        def work(connection: Connection) -> list[RegistryServer]:
            rows = connection.execute(SELECT_SERVERS).all()
            return servers_from_rows(rows, connection.execute(SELECT_CHOICES).all(), self._cipher)

        all_servers = await self._executor.read(work)
        return sorted(all_servers, key=lambda server: (fold_case(server.name), server.name))

    async def get_server(self, server_id: str) -> RegistryServer | None:
        return await self._executor.read_or_default(
            lambda connection: self._read_server(connection, server_id), None
        )

    async def add_server(self, server: RegistryServer) -> None:
        def work(connection: Connection) -> None:
            if not insert_if_absent(connection, servers, {"id": server.id, **server_values(server)}):
                raise _name_taken_error(server.name)
            self._add_choices(connection, server)
            self._notify_changed(connection, server.id)

        await self._executor.write(work)

    async def save_server(self, server: RegistryServer) -> bool:
        """Save a server. Instances of a removed sign-in choice lose their credentials and become pending."""

        def work(connection: Connection) -> bool:
            statement = update(servers).where(servers.c.id == server.id).values(**server_values(server))
            try:
                if not connection.execute(statement).rowcount:
                    return False
            except IntegrityError as error:
                if violated_constraint(error) != "unique":
                    raise
                raise _name_taken_error(server.name) from None
            connection.execute(delete(auth_choices).where(auth_choices.c.server_id == server.id))
            self._add_choices(connection, server)
            remaining = [choice.id for choice in server.choices]
            uses_removed_choice = (instances.c.server_id == server.id) & instances.c.choice_id.not_in(
                remaining
            )
            _reset_sign_ins(connection, uses_removed_choice, "its sign-in method was removed")
            self._notify_changed(connection, server.id)
            return True

        return await self._executor.write(work)

    async def delete_server(self, server_id: str) -> bool:
        def work(connection: Connection) -> bool:
            self._notify_changed(connection, server_id)
            return delete_server_rows(connection, server_id)

        return await self._executor.write_or_default(work, False)

    async def count_instances(self) -> dict[str, int]:
        query = select(instances.c.server_id, func.count()).group_by(instances.c.server_id)
        rows = await self._executor.read(lambda connection: connection.execute(query).all())
        return {row[0]: row[1] for row in rows}

    async def list_instance_choices(self, server_id: str) -> Mapping[str, str]:
        query = select(instances.c.id, instances.c.choice_id).where(instances.c.server_id == server_id)
        rows = await self._executor.read_or_default(lambda connection: connection.execute(query).all(), ())
        return {row.id: row.choice_id for row in rows}

    def _notify_changed(self, connection: Connection, changed_id: str) -> None:
        self._signals.notify(connection, REGISTRY_CHANNEL, changed_id)

    def _read_server(self, connection: Connection, server_id: str) -> RegistryServer | None:
        rows = connection.execute(SELECT_SERVERS.where(servers.c.id == server_id)).all()
        choices = connection.execute(SELECT_CHOICES.where(auth_choices.c.server_id == server_id)).all()
        return next(iter(servers_from_rows(rows, choices, self._cipher)), None)

    def _add_choices(self, connection: Connection, server: RegistryServer) -> None:
        if rows := choice_rows(server, self._cipher):
            connection.execute(auth_choices.insert(), rows)

    # Instances.

    async def list_instances(self, user_id: str) -> Sequence[tuple[Instance, RegistryServer]]:
        def work(connection: Connection) -> list[tuple[Instance, RegistryServer]]:
            rows = connection.execute(_SELECT_USER_INSTANCES, {"user": user_id}).all()
            if not rows:
                return []
            server_rows = connection.execute(_SELECT_USER_SERVERS, {"user": user_id}).all()
            choices = connection.execute(_SELECT_USER_CHOICES, {"user": user_id}).all()
            by_id = {server.id: server for server in servers_from_rows(server_rows, choices, self._cipher)}
            # Reads have no transaction: a server may have been deleted since the first query, with its
            # instances.
            user_instances = (instance_from_row(row, self._cipher) for row in rows)
            return [
                (instance, by_id[instance.server_id])
                for instance in user_instances
                if instance.server_id in by_id
            ]

        pairs = await self._executor.read_or_default(work, ())
        return sorted(pairs, key=lambda pair: (fold_case(pair[0].slug), pair[0].slug))

    async def get_instance(self, user_id: str, instance_id: str) -> tuple[Instance, RegistryServer] | None:
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

    async def add_instance(self, instance: Instance, *, max_per_user: int = 0) -> None:
        def work(connection: Connection) -> None:
            own = instances.c.user_id == instance.user_id
            require_room(connection, instances, own, max_per_user, "instances", "instance_limit")
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
                raise NotFound("the user no longer exists") from None
            self._notify_changed(connection, instance.id)

        await self._executor.write(work)

    async def save_instance(self, instance: Instance) -> bool:
        def work(connection: Connection) -> bool:
            is_instance = _owner_condition(instance.user_id, instance.id) & (
                instances.c.server_id == instance.server_id
            )
            old_choice_id = connection.execute(select(instances.c.choice_id).where(is_instance)).scalar()
            if old_choice_id is None:
                return False
            _require_choice(connection, instance)
            if old_choice_id != instance.choice_id:
                delete_grant_rows(connection, [instance.id])
            try:
                statement = (
                    update(instances).where(is_instance).values(**instance_values(instance, self._cipher))
                )
                saved = connection.execute(statement).rowcount > 0
            except IntegrityError as error:
                if violated_constraint(error) != "unique":
                    raise
                raise _slug_taken_error(instance.slug) from None
            self._notify_changed(connection, instance.id)
            return saved

        return await self._executor.write(work)

    async def set_instance_state(self, instance_id: str, state: InstanceState, reason: str | None) -> None:
        statement = update(instances).where(instances.c.id == instance_id)
        statement = statement.values(state=state.value, reason=clean_reason(reason))

        def work(connection: Connection) -> None:
            if connection.execute(statement).rowcount:
                self._notify_changed(connection, instance_id)

        await self._executor.write_or_default(work, None)

    async def delete_instance(self, user_id: str, instance_id: str) -> bool:
        def work(connection: Connection) -> bool:
            if not connection.execute(
                delete(instances).where(_owner_condition(user_id, instance_id))
            ).rowcount:
                return False
            delete_grant_rows(connection, [instance_id])
            self._notify_changed(connection, instance_id)
            return True

        return await self._executor.write_or_default(work, False)

    async def reset_instances(self, server_id: str) -> None:
        def work(connection: Connection) -> None:
            public_choices = select(auth_choices.c.id).where(
                auth_choices.c.server_id == server_id, auth_choices.c.kind == AuthKind.PUBLIC.value
            )
            uses_credentials = (instances.c.server_id == server_id) & instances.c.choice_id.not_in(
                public_choices
            )
            _reset_sign_ins(connection, uses_credentials, "the address of the server changed")
            self._notify_changed(connection, server_id)

        await self._executor.write_or_default(work, None)


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
