"""Subscriptions of gateway clients: forwards server notifications to the clients that asked for them, and
subscribes to the resources of servers in their name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from toolyard.clients import ConnectionManager
from toolyard.clients.connection import Connection
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.errors import RpcError, ServerError, ToolyardError
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.call import McpRequest
from toolyard.types.server import Timeouts

__all__ = [
    "ELICITATION_COMPLETE",
    "LIST_CHANGED_KINDS",
    "RESOURCE_UPDATED",
    "SUBSCRIPTION_ACKNOWLEDGED",
    "ClientSubscriptions",
    "Subscription",
    "UpstreamSubscriptions",
]


log = logging.getLogger("toolyard.gateway")

RESOURCE_UPDATED: Final = "notifications/resources/updated"
SUBSCRIPTION_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_LISTEN_TIMEOUTS = Timeouts(silence=30 * 86400.0, call=30 * 86400.0)
_PING_TIMEOUTS = Timeouts(silence=30.0, call=30.0)
_RETRY_SECONDS = 5.0
"""Delay before a failed or ended subscription is tried again."""
_PING_INTERVAL_SECONDS = 5.0
"""Interval of pings that detect a restarted legacy server.

Over HTTP nothing else reports a restart. The pings also keep the connection from becoming idle.
"""

OnNotification: TypeAlias = Callable[[str, str, str, Mapping[str, Any]], None]
"""Notification handler: server id, principal id, method, parameters."""


@dataclass(slots=True, eq=False)
class _ServerSubscriptions:
    """Subscribed resources of one server, on one principal's connection."""

    server_id: str
    principal: Principal
    uris: Counter[str] = field(default_factory=Counter[str])
    maintenance_task: asyncio.Task[None] | None = None
    connection_generation: tuple[Connection, tuple[int, int]] | None = None
    """The connection and the generation of the server that know all subscriptions; None if the server may
    have lost them."""
    is_resubscribing: bool = False
    """Whether the server is being subscribed to again."""


class UpstreamSubscriptions:
    """Subscribes to each resource once per connection, for as long as a client follows it.

    A restarted server has lost its subscriptions. They are made again, and clients are told that the
    resources may have changed, since updates may have been missed. A legacy server has been restarted if it
    no longer knows our session. One that gave us no session counts as restarted when its event stream broke
    off and came back; if it was not, a repeated subscription does no harm.
    """

    def __init__(
        self,
        manager: ConnectionManager,
        on_notification: OnNotification,
        *,
        retry_seconds: float = _RETRY_SECONDS,
        ping_interval_seconds: float = _PING_INTERVAL_SECONDS,
    ) -> None:
        """``on_notification`` receives notifications in the name of a server."""
        self.retry_seconds = retry_seconds
        self.ping_interval_seconds = ping_interval_seconds
        self._manager = manager
        self._on_notification = on_notification
        self._server_subscriptions: dict[tuple[str, str], _ServerSubscriptions] = {}

    async def subscribe(self, server_id: str, principal: Principal, uri: str) -> None:
        """Add one subscriber of a resource. Raises ServerError."""
        followed = self._get_or_create(server_id, principal)
        first = not followed.uris
        followed.uris[uri] += 1
        try:
            connection = self._manager.connection(server_id, followed.principal)
            by_request = (await connection.ensure_connected()).era.subscribes_by_request
            if not by_request and followed.uris[uri] == 1:
                # Only the first subscription may claim that the server knows all of them. A later one leaves
                # an older mark as it is, so that the maintenance notices a restart in between.
                if first:
                    followed.connection_generation = _current_generation(connection)
                await connection.request(McpRequest("resources/subscribe", {"uri": uri}, repeatable=True))
        except BaseException:
            self._release_uri(followed, uri)
            # Another subscriber may have relied on this one.
            followed.connection_generation = None
            raise
        if followed.maintenance_task is None or (by_request and followed.uris[uri] == 1):
            self._restart_maintenance(followed)

    async def unsubscribe(self, server_id: str, principal: Principal, uri: str) -> None:
        """Remove one subscriber of a resource. A disconnected server is not told. Raises ServerError."""
        # The server may have been removed, and then nothing tells whether it was shared.
        places = (
            self._server_subscriptions.get((server_id, whose)) for whose in (principal.id, LOCAL_PRINCIPAL.id)
        )
        followed = next((each for each in places if each is not None and uri in each.uris), None)
        if followed is None or not self._release_uri(followed, uri):
            return
        connection = self._manager.connection(server_id, followed.principal)
        facts = connection.handshake_result
        if facts is None:
            return
        if not facts.era.subscribes_by_request:
            await connection.request(McpRequest("resources/unsubscribe", {"uri": uri}, repeatable=True))
        elif followed.uris:
            self._restart_maintenance(followed)

    def on_acknowledged(self, server_id: str, principal_id: str, params: Mapping[str, Any]) -> None:
        """Handle the acknowledgement of a subscription: report what may have changed before it."""
        followed = self._server_subscriptions.get((server_id, principal_id))
        wanted = params.get("notifications")
        about = isinstance(wanted, dict) and "resourceSubscriptions" in cast("dict[str, Any]", wanted)
        if followed is not None and followed.is_resubscribing and about:
            followed.is_resubscribing = False
            self._notify_possible_changes(followed)

    async def close(self) -> None:
        """End all subscriptions."""
        tasks = [
            each.maintenance_task
            for each in self._server_subscriptions.values()
            if each.maintenance_task is not None
        ]
        self._server_subscriptions.clear()
        await cancel_tasks(tasks)

    def _get_or_create(self, server_id: str, principal: Principal) -> _ServerSubscriptions:
        server = self._manager.servers.get(server_id)
        whose = LOCAL_PRINCIPAL if server is not None and server.shared else principal
        key = (server_id, whose.id)
        if key not in self._server_subscriptions:
            self._server_subscriptions[key] = _ServerSubscriptions(server_id, whose)
        return self._server_subscriptions[key]

    def _release_uri(self, followed: _ServerSubscriptions, uri: str) -> bool:
        """Remove one reference, and return whether it was the last."""
        followed.uris[uri] -= 1
        if followed.uris[uri] > 0:
            return False
        del followed.uris[uri]
        if not followed.uris:
            self._server_subscriptions.pop((followed.server_id, followed.principal.id), None)
            if followed.maintenance_task is not None:
                followed.maintenance_task.cancel()
        return True

    def _restart_maintenance(self, followed: _ServerSubscriptions) -> None:
        if followed.maintenance_task is not None:
            followed.maintenance_task.cancel()
        followed.maintenance_task = asyncio.get_running_loop().create_task(
            self._maintain_subscriptions(followed)
        )

    async def _maintain_subscriptions(self, followed: _ServerSubscriptions) -> None:
        while True:
            try:
                facts = await self._manager.ensure_connected(followed.server_id, principal=followed.principal)
                listen = self._listen if facts.era.subscribes_by_request else self._resubscribe_after_restarts
                await listen(followed)
            except ToolyardError as error:
                log.debug("resources of '%s' cannot be watched: %s", followed.server_id, error)
            await asyncio.sleep(self.retry_seconds)
            # Updates may have been missed until the next acknowledgement.
            followed.is_resubscribing = True

    async def _listen(self, followed: _ServerSubscriptions) -> None:
        """Hold the request that names all resources; it is replaced when they change."""
        params = {"notifications": {"resourceSubscriptions": sorted(followed.uris)}}
        connection = self._manager.connection(followed.server_id, followed.principal)
        await connection.request(McpRequest("subscriptions/listen", params, timeouts=_LISTEN_TIMEOUTS))

    async def _resubscribe_after_restarts(self, followed: _ServerSubscriptions) -> None:
        """Subscribe once in each generation of the server."""
        while True:
            connection = self._manager.connection(followed.server_id, followed.principal)
            await connection.ensure_connected()
            if (mark := _current_generation(connection)) != followed.connection_generation:
                for uri in sorted(followed.uris):
                    # One resource may no longer exist; the others are still subscribed to.
                    with contextlib.suppress(RpcError):
                        await connection.request(
                            McpRequest("resources/subscribe", {"uri": uri}, repeatable=True)
                        )
                followed.connection_generation = mark
                self._notify_possible_changes(followed)
            await asyncio.sleep(self.ping_interval_seconds)
            # Any answer shows that the server is there. If it was restarted, the connection is made again,
            # which changes the generation.
            with contextlib.suppress(RpcError):
                await connection.request(McpRequest("ping", repeatable=True, timeouts=_PING_TIMEOUTS))

    def _notify_possible_changes(self, followed: _ServerSubscriptions) -> None:
        for uri in sorted(followed.uris):
            self._on_notification(followed.server_id, followed.principal.id, RESOURCE_UPDATED, {"uri": uri})


def _current_generation(connection: Connection) -> tuple[Connection, tuple[int, int]]:
    return connection, connection.generation


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
        self.upstream = UpstreamSubscriptions(manager, self.on_notification)
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
            self.upstream.on_acknowledged(server_id, principal_id, params)
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
            await self.upstream.subscribe(server_id, subscription.principal, uri)
        except BaseException:
            subscription.uris.pop((server_id, uri), None)
            raise

    async def unsubscribe(self, subscription: Subscription, server_id: str, uri: str) -> None:
        """Unsubscribe from a resource. Raises ServerError."""
        if subscription.uris.pop((server_id, uri), None) is not None:
            await self.upstream.unsubscribe(server_id, subscription.principal, uri)

    async def close(self) -> None:
        """Remove all subscriptions."""
        self._unsubscribe_notifications()
        await self.upstream.close()
