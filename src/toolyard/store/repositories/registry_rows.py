"""Conversion of registry servers and instances to rows and back. Encrypts client secrets and API keys.

A user may have a thousand instances on one page. So rows are unpacked by position, and enums are looked up in
dictionaries: calling an enum class costs more than the rest of the conversion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Select, Table, select

from toolyard.store.sql.casefold import fold_case
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.columns import clean_text
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
    "choice_rows",
    "clean_reason",
    "instance_from_row",
    "instance_values",
    "server_values",
    "servers_from_rows",
]

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
