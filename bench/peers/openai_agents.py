"""openai-agents' MCP servers behind its own manager, connected in parallel."""

from __future__ import annotations

from typing import Any

from agents.mcp import MCPServerManager, MCPServerStdio, MCPServerStreamableHttp

from peers.driver import Target, drive

PATIENCE = 300.0
"""Its default of five seconds is too short for the larger results on a busy machine."""


def server(target: Target) -> MCPServerStreamableHttp | MCPServerStdio:
    """The library's server object for a target; it lists over the wire each time by default."""
    if "url" in target:
        return MCPServerStreamableHttp(
            {"url": target["url"], "timeout": PATIENCE}, client_session_timeout_seconds=PATIENCE
        )
    return MCPServerStdio(
        {"command": target["command"], "args": target["args"]}, client_session_timeout_seconds=PATIENCE
    )


class OpenAiAgents:
    """``agents.mcp.MCPServerManager``."""

    async def open(self, targets: list[Target]) -> None:
        self.servers = [server(target) for target in targets]
        self.manager = MCPServerManager(self.servers, connect_in_parallel=True, strict=True)
        await self.manager.connect_all()

    async def list(self, index: int) -> int:
        return len(await self.servers[index].list_tools())

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self.servers[0].call_tool(tool, arguments)

    def text(self, answer: Any) -> str:
        return answer.content[0].text

    async def close(self) -> None:
        await self.manager.cleanup_all()


if __name__ == "__main__":
    drive(OpenAiAgents, "openai-agents", "mcp")
