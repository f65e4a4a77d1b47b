"""One person's programs at the API, and their browser."""

from __future__ import annotations

from typing import Any

from tests.soak.balanced_requests import BalancedClient, events
from tests.soak.chat_user import ChatUser
from tests.soak.request_outcomes import RequestFailure, Wrong

LOOKS = ("status", "me", "servers", "instances", "tools", "agents", "chats", "models", "grants", "tokens")
PAGES = ("/ui/", "/ui/mcp", "/ui/agents", "/ui/agents/clerk", "/ui/approvals", "/ui/connect", "/ui/mcp/new")


class ApiUser:
    """What they do."""

    def __init__(self, line: BalancedClient, talking: ChatUser) -> None:
        self._line = line
        self._talking = talking

    async def one(self) -> None:
        """One of those things."""
        looks = (self._look,) * 4
        does = (self._call, self._call, self._instance, self._token, self._audit, self._answer, self._watch)
        await self._line.random.choice((*looks, *does))()

    async def page(self) -> None:
        """A page, as a browser asks for it."""
        path = self._line.random.choice((*PAGES, self._talking.page))
        # A chat may have been deleted meanwhile, by the same person.
        await self._line.ask("page", "GET", path, browser=True, refused_statuses=(404,))

    async def settle_in(self, server_id: str) -> str:
        """Make the instance that stays; its slug."""
        draft = {"server_id": server_id, "slug": "shop"}
        await self._line.ask("api: create an instance", "POST", "/api/v1/instances", draft, good=(201,))
        return "shop"

    async def move_out(self) -> None:
        """Delete all instances, and say no to whatever waits."""
        await self._answer()
        response = await self._line.ask("api: look", "GET", "/api/v1/instances")
        for each in response.json["items"]:
            await self._delete(f"instances/{each['id']}")

    async def _look(self) -> None:
        path = f"/api/v1/{self._line.random.choice(LOOKS)}"
        await self._line.ask("api: look", "GET", path)

    async def _call(self) -> None:
        mark = f"{self._line.person.name}-{self._line.random.randrange(10**9)}"
        path, body = "/api/v1/tools/desk_look/call", {"arguments": {"text": mark}}
        await self._line.ask("api: call a tool", "POST", path, body, says=f"look: {mark}")

    async def _instance(self) -> None:
        """Create one, use it, change it, delete it."""
        server_id = self._line.random.choice(list(self._line.environment.registered.values()))
        slug = f"s{self._line.random.randrange(10**9)}"
        draft = {"server_id": server_id, "slug": slug}
        ask = self._line.ask
        instance = await ask("api: create an instance", "POST", "/api/v1/instances", draft, good=(201,))
        path = f"/api/v1/instances/{instance.json['id']}"
        try:
            await ask("api: tools of an instance", "GET", f"{path}/tools")
            changes = {"tool_filter": ["echo", "query-docs"], "name": "Changed"}
            await ask("api: change an instance", "PATCH", path, changes)
            await ask("api: change an instance", "POST", f"{path}/disable")
        finally:
            await self._delete(f"instances/{instance.json['id']}")

    async def _token(self) -> None:
        """Only a browser makes tokens; the new one is used, and deleted."""
        token_draft = {"name": "short", "scope": {"rights": ["read", "call"]}, "expires_in": 600}
        ask = self._line.ask
        api_token = await ask(
            "api: make a token", "POST", "/api/v1/tokens", token_draft, good=(201,), browser=True
        )
        await self._delete(f"tokens/{api_token.json['id']}", browser=True)

    async def _audit(self) -> None:
        """For admins; others are refused."""
        good, expected_statuses = ((200,), ()) if self._line.person.admin else ((), (403,))
        await self._line.ask(
            "api: audit", "GET", "/api/v1/audit?limit=100", good=good, refused_statuses=expected_statuses
        )

    async def _answer(self) -> None:
        """Say no to what clients of the gateway wanted."""
        response = await self._line.ask("api: look", "GET", "/api/v1/approvals")
        for each in response.json["items"]:
            if each["chat_id"] is None:
                path = f"/api/v1/approvals/{each['id']}"
                missing_statuses = (404, 409)
                await self._line.ask(
                    "api: say no",
                    "POST",
                    path,
                    {"yes": False},
                    good=(204,),
                    refused_statuses=missing_statuses,
                )

    async def _watch(self) -> None:
        """The states of all servers, for a moment."""
        await self._line.tally.counted("api: watch", self._first_states())

    async def _first_states(self) -> None:
        async with self._line.opened("GET", "/api/v1/events") as (response, replica, exchange):
            if response.status != 200:
                raise self._line.odd(response.status, await response.text(), replica, exchange)
            count = 0
            async for _ in events(response):
                count += 1
                if count == 3:
                    return
            if not replica.disturbed(exchange):
                raise Wrong("the stream of states ended")

    async def _delete(self, resource: str, **options: Any) -> None:
        ask = self._line.ask
        try:
            await ask(
                "api: delete",
                "DELETE",
                f"/api/v1/{resource}",
                good=(204,),
                refused_statuses=(404,),
                **options,
            )
        except RequestFailure:
            # It may be gone all the same; whoever asks again is refused.
            await ask(
                "api: delete",
                "DELETE",
                f"/api/v1/{resource}",
                good=(204,),
                refused_statuses=(404,),
                **options,
            )
