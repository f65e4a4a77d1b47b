"""The trace of a turn in a chat, from the browser to the server that was called, at a collector."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from playwright.async_api import Browser, expect
from tests.conftest import ListeningProgram, ProgramStarter
from tests.journeys.test_chat import ChatWindow
from tests.web.server.test_traces import SECRET, OtlpReceiver, attributes, reporting_entry, trace_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

TURN = {"invoke_agent", "chat fake-1", "tools/call report", "connect it", "initialize"}


@pytest_asyncio.fixture(loop_scope="session")
async def collector() -> AsyncIterator[OtlpReceiver]:
    received, app = OtlpReceiver(), web.Application()
    app.router.add_post("/v1/traces", received.receive)
    async with TestServer(app) as server:
        received.url = str(server.make_url("/")).rstrip("/")
        yield received


async def test_a_turn_in_the_browser_is_one_trace_at_the_collector(
    collector: OtlpReceiver,
    model_program: ListeningProgram,
    start_program: ProgramStarter,
    chromium: Browser,
    tmp_path: Path,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "mcp.json").write_text(json.dumps({"mcpServers": {"it": reporting_entry(tmp_path)}}))
    settings = {
        "TOOLYARD_MODEL": "openai:fake-1",
        "TOOLYARD_MODEL_BASE_URL": f"{model_program.url}/v1",
        "TOOLYARD_MODEL_API_KEY": "good",
        "TOOLYARD_CHAT_TITLES": "false",
        "TOOLYARD_WARM": "false",
    }
    words = (sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}")
    url = start_program(*words, HOME=str(tmp_path), **settings, **trace_settings(collector)).url

    talk = await ChatWindow.open(chromium, url)
    await talk.say("call it_report {}", "then", "say done")
    await talk.ended()
    card = talk.card("it_report")
    await expect(card).to_contain_text("Done")

    def spans_of_turn() -> dict[str, Span]:
        turns = [span for span in collector.spans if span.name == "invoke_agent"]
        return collector.of_trace(turns[0].trace_id.hex()) if turns else {}

    # Spans come in groups, that of the turn last.
    await wait_until(lambda: spans_of_turn().keys() >= TURN)
    spans = spans_of_turn()
    turn, call = spans["invoke_agent"], spans["tools/call report"]
    assert call.parent_span_id == spans["chat fake-1"].parent_span_id == turn.span_id
    assert spans["initialize"].parent_span_id == spans["connect it"].span_id
    assert attributes(turn)["toolyard.turn.outcome"] == "done"
    assert attributes(turn)["gen_ai.conversation.id"] in talk.page.url
    assert attributes(call)["gen_ai.tool.name"] == "report"
    assert collector.services == {"toolyard"}
    assert SECRET not in str(collector.spans)
    # The server got the context of its call (its flags differ), and the page shows what it returned.
    await card.locator("summary").first.click()
    await expect(card).to_contain_text(f"00-{call.trace_id.hex()}-{call.span_id.hex()}-0")
    assert talk.said == []
    await talk.context.close()
