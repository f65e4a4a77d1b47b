"""Calls through the whole library: name, agent, policy, call, result shape, audit record."""

from __future__ import annotations

import tempfile
from typing import Any

from peers.driver import Target, drive
from toolyard import Toolyard
from toolyard.types.agent import Agent
from toolyard.types.call import CallRecord

TTL = 3600


def entry(target: Target) -> dict[str, Any]:
    """A server's entry in the configuration, with the rules that a careful user has."""
    spec = (
        {"url": target["url"]} if "url" in target else {"command": target["command"], "args": target["args"]}
    )
    return {**spec, "cache": {"ttl": TTL}, "denyTools": ["delete*"]}


class Yard:
    """``toolyard.Toolyard`` with an agent's patterns, a deny list and a record of every call."""

    def __init__(self) -> None:
        self.records: list[CallRecord] = []
        self.agents = 0

    async def open(self, targets: list[Target]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        agents = [
            Agent(f"a{number}", f"A{number}", tools=("*", "!*_secret", f"s{number}_*"))
            for number in range(64)
        ]
        self.yard = await Toolyard.open(
            {"mcpServers": {f"s{index}": entry(target) for index, target in enumerate(targets)}},
            agents=agents,
            data_dir=self.folder.name,
            settings={"write_tools": "allow"},
            record=self.records.append,
        ).__aenter__()
        await self.yard.tools(agent="a0", mode="direct")

    async def list(self, index: int) -> int:
        """For agent number ``index``: the first time its decisions are made, then they are known."""
        return len(await self.yard.tools(agent=f"a{index}", mode="direct"))

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        self.records.clear()
        return await self.yard.call(f"s0_{tool}", arguments, agent="a0")

    def text(self, answer: Any) -> str:
        return answer.text

    async def close(self) -> None:
        await self.yard.close()
        self.folder.cleanup()


if __name__ == "__main__":
    drive(Yard, "toolyard", "aiohttp", "orjson")
