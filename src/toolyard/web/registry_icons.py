"""Icons of registry servers: of the person's own instance, or as the server published it in a preview."""

from __future__ import annotations

from collections.abc import Iterable

from toolyard.core.callers import CallerCache
from toolyard.core.instances import InstanceSync
from toolyard.registry import Registry
from toolyard.types.account import RequestUser
from toolyard.types.registry import RegistryServer
from toolyard.web.server_icons import Icon, ServerIcons
from toolyard.web.server_preview import ServerPreviews
from toolyard.web.server_status import ServerRecords

__all__ = ["RegistryIcons"]


class RegistryIcons:
    """Finds icons of registry servers without contacting the servers."""

    def __init__(
        self,
        registry: Registry,
        instances: InstanceSync,
        callers: CallerCache,
        records: ServerRecords,
        previews: ServerPreviews,
        icons: ServerIcons,
    ) -> None:
        self._registry = registry
        self._instances = instances
        self._callers = callers
        self._records = records
        self._previews = previews
        self._icons = icons

    async def list_paths(self, me: RequestUser, servers: Iterable[RegistryServer]) -> dict[str, str]:
        """Return the path of the icon of each server, by its id; empty if none is known."""
        caller = self._callers.get(me)
        own = {
            registered.id: self._records.find_instance_icon_path(caller, instance, registered)
            for instance, registered in await self._instances.sync(me.principal)
        }
        return {each.id: own.get(each.id) or self._find_preview_path(each) for each in servers}

    def _find_preview_path(self, server: RegistryServer) -> str:
        return f"/ui/registry/{server.id}/icon" if self._previews.find_icon_urls(server) else ""

    async def fetch(self, server_id: str) -> Icon | None:
        """Return the icon that a server published in a preview, or None. Raises NotFound."""
        server = await self._registry.get_server(server_id)
        urls = self._previews.find_icon_urls(server)
        return await self._icons.fetch(self._registry.build_preview_server(server), urls)
