"""Subscriptions of gateway clients: forwards server notifications to the clients that asked for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolyard.clients import ConnectionManager
from toolyard.errors import ServerError
from toolyard.gateway.upstream_subscriptions import (
    RESOURCE_UPDATED,
    SUBSCRIPTION_ACKNOWLEDGED,
    UpstreamSubscriptions,
)
from toolyard.types.account import LOCAL_PRINCIPAL, Principal

__all__ = ["ELICITATION_COMPLETE", "LIST_CHANGED_KINDS", "ClientSubscriptions", "Subscription"]

ELICITATION_COMPLETE = "notifications/elicitation/complete"
"""Notification that the person has completed a URL elicitation; the modern era has no equivalent."""

LIST_CHANGED_KINDS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


@dataclass(slots=True, eq=False)
class Subscription:
    """The subscriptions of one client. ``notify`` gets method and parameters."""

    principal: Principal
    can_see_server: Callable[[str], bool]
    """Whether the client sees anything of a server."""
    notify: Callable[[str, Mapping[str, Any]], None]
    kinds: set[str] = field(default_factory=set[str])
    """The lists that the client follows: ``tools``, ``prompts``, ``resources``; and ``elicitations`` if it
    opens URLs for servers."""
    uris: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Subscribed resources: server id and the server's URI, with the URI that the client uses."""
    only_server_id: str | None = None
    """The only server that the client sees, at the address of one server."""


class ClientSubscriptions:
    """Subscriptions of all clients."""

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager
        self._subscriptions: set[Subscription] = set()
        self._upstream_subscriptions = UpstreamSubscriptions(manager, self.on_notification)
        self._unsubscribe_notifications = manager.subscribe(self.on_notification)

    def add(self, subscription: Subscription) -> None:
        self._subscriptions.add(subscription)

    async def remove(self, subscription: Subscription) -> None:
        """Remove a client's subscriptions, and the upstream subscriptions that only it used."""
        self._subscriptions.discard(subscription)
        for server_id, uri in list(subscription.uris):
            with contextlib.suppress(ServerError):
                await self.unsubscribe(subscription, server_id, uri)

    def on_notification(
        self, server_id: str, principal_id: str, method: str, params: Mapping[str, Any]
    ) -> None:
        """Forward a notification that a server sent on a connection of this principal."""
        if method == SUBSCRIPTION_ACKNOWLEDGED:
            self._upstream_subscriptions.on_acknowledged(server_id, principal_id, params)
            return
        server = self._manager.servers.get(server_id)
        common = principal_id == LOCAL_PRINCIPAL.id and server is not None and server.shared
        for watch in list(self._subscriptions):
            if not common and watch.principal.id != principal_id:
                continue
            if method == RESOURCE_UPDATED:
                uri = params.get("uri")
                if isinstance(uri, str) and (name := watch.uris.get((server_id, uri))) is not None:
                    watch.notify(method, {**params, "uri": name})
            elif method == ELICITATION_COMPLETE:
                # All clients of the principal get it: those that do not know the id ignore it.
                if "elicitations" in watch.kinds and not common and watch.can_see_server(server_id):
                    watch.notify(method, params)
            elif LIST_CHANGED_KINDS.get(method) in watch.kinds and watch.can_see_server(server_id):
                watch.notify(method, {})

    def notify_tools_changed(self) -> None:
        """Notify all subscribers that their tools changed, for reasons other than a server's notification."""
        for watch in list(self._subscriptions):
            if "tools" in watch.kinds:
                watch.notify("notifications/tools/list_changed", {})

    def subscriber_principals(self) -> list[Principal]:
        """Return the principals with at least one subscription."""
        return list({watch.principal.id: watch.principal for watch in self._subscriptions}.values())

    def notify_servers_changed(self, principal: Principal | None, server_ids: Collection[str]) -> None:
        """Notify subscribers of changed, added or removed servers, for one principal or for everyone."""
        for watch in list(self._subscriptions):
            mine = principal is None or watch.principal.id == principal.id
            if server_ids and mine and (watch.only_server_id is None or watch.only_server_id in server_ids):
                for method, kind in LIST_CHANGED_KINDS.items():
                    if kind in watch.kinds:
                        watch.notify(method, {})

    # Resources.

    async def subscribe(self, subscription: Subscription, server_id: str, uri: str, exposed_uri: str) -> None:
        """Subscribe to a resource. Raises ServerError."""
        if (server_id, uri) in subscription.uris:
            return
        # Registered before the request, because the server may send an update at once.
        subscription.uris[server_id, uri] = exposed_uri
        try:
            await self._upstream_subscriptions.subscribe(server_id, subscription.principal, uri)
        except BaseException:
            subscription.uris.pop((server_id, uri), None)
            raise

    async def unsubscribe(self, subscription: Subscription, server_id: str, uri: str) -> None:
        """Unsubscribe from a resource. Raises ServerError."""
        if subscription.uris.pop((server_id, uri), None) is not None:
            await self._upstream_subscriptions.unsubscribe(server_id, subscription.principal, uri)

    async def close(self) -> None:
        """Remove all subscriptions."""
        self._unsubscribe_notifications()
        await self._upstream_subscriptions.close()
