"""Traces: spans as they arrive at a collector, and the trace context as it arrives at servers."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.conftest import ListeningProgram
from tests.web.chat import chat_client
from tests.web.conftest import HttpClient, Starting, ToolyardProcess, environment

from toolyard.auth.errors import TokenRefused
from toolyard.auth.oauth_http import AddressPolicy, OAuthHttpClient
from toolyard.auth.storage import OAuthClient
from toolyard.auth.token_endpoint import request_tokens
from toolyard.net import OutboundHttp
from toolyard.tracing.otel import OtelTracer

Until = Callable[..., Awaitable[None]]

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "sesame-open-1234"

REPORTING_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "reporting", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "report", "inputSchema": {"type": "object"},
                             "annotations": {"readOnlyHint": True}}]}
    elif method == "tools/call":
        is_error = bool(params["arguments"].get("fail"))
        result = {"content": [{"type": "text", "text": json.dumps(params["_meta"])}], "isError": is_error}
    else:
        if "id" in message:
            error = {"code": -32601, "message": "Method not found"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@dataclass
class OtlpReceiver:
    """An OTLP/HTTP receiver, and the spans that it decoded."""

    url: str = ""
    spans: list[Span] = field(default_factory=list[Span])
    services: set[str] = field(default_factory=set[str])

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        body = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            }
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")

    def of_trace(self, trace: str) -> dict[str, Span]:
        """The spans of a trace by their names."""
        return {span.name: span for span in self.spans if span.trace_id.hex() == trace}


@pytest.fixture
async def collector() -> AsyncIterator[OtlpReceiver]:
    received = OtlpReceiver()
    app = web.Application()
    app.router.add_post("/v1/traces", received.receive)
    async with TestServer(app) as server:
        received.url = str(server.make_url("/")).rstrip("/")
        yield received


@pytest.fixture
async def reporting_url() -> AsyncIterator[str]:
    """A Streamable HTTP server whose tool returns the ``_meta`` and the headers of its call."""

    async def answer(request: web.Request) -> web.Response:
        message = await request.json()
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            return web.Response(status=202)
        if method == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "reporting", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": [{"name": "report", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            traced_request = {"meta": params["_meta"], "headers": dict(request.headers)}
            result = {"content": [{"type": "text", "text": json.dumps(traced_request)}]}
        else:
            error = {"code": -32601, "message": "Method not found"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    app = web.Application()
    app.router.add_post("/mcp", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/mcp"))


def attributes(span: Span) -> dict[str, Any]:
    traced_requests: dict[str, Any] = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        traced_requests[each.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return traced_requests


def reporting_entry(folder: Path) -> dict[str, Any]:
    script = folder / "reporting.py"
    script.write_text(REPORTING_SERVER)
    return {"command": sys.executable, "args": ["-I", "-S", str(script)], "env": {"KEY": SECRET}}


def trace_settings(collector: OtlpReceiver, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50", **more}


async def call_gateway(
    toolyard_process: ToolyardProcess, meta: Any, arguments: Any = None, **headers: str
) -> Any:
    """The result of a call of the tool ``it_report`` by a client of the modern era."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        **meta,
    }
    params = {"name": "it_report", "arguments": arguments or {}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": "req-7", "method": "tools/call", "params": params}
    trace_headers = {
        "Mcp-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "it_report",
        "Accept": "application/json, text/event-stream",
        **headers,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{toolyard_process.url}/mcp", json=body, headers=trace_headers) as response,
    ):
        answer = await response.json()
    return answer["result"]


async def test_one_trace_leads_from_an_api_request_to_the_server_that_was_called(
    serve: Starting,
    collector: OtlpReceiver,
    model_program: ListeningProgram,
    tmp_path: Path,
    wait_until: Until,
) -> None:
    site = await serve(
        {"it": reporting_entry(tmp_path)},
        TOOLYARD_MODEL="openai:fake-1",
        TOOLYARD_MODEL_BASE_URL=f"{model_program.url}/v1",
        TOOLYARD_MODEL_API_KEY="good",
        TOOLYARD_CHAT_TITLES="false",
        TOOLYARD_WARM="false",
        **trace_settings(collector),
    )
    client = HttpClient(site.url, {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"})
    try:
        chat = await chat_client.begin(client)
        await chat_client.say(client, chat, f'call it_report {{"word": "{SECRET}"}}', "then", "say done")
        await chat_client.wait_for_end(client, chat)
        results = await chat_client.of_kind(client, chat, "result")
    finally:
        await client.close()
    span_names = {
        "POST /api/v1/chats/{id}/messages",
        "invoke_agent",
        "chat fake-1",
        "tools/call report",
        "connect it",
        "initialize",
        "tools/list",
    }
    await wait_until(lambda: span_names <= collector.of_trace(TRACE).keys())
    spans = collector.of_trace(TRACE)
    request, turn_span = spans["POST /api/v1/chats/{id}/messages"], spans["invoke_agent"]
    call, model = spans["tools/call report"], spans["chat fake-1"]
    assert request.parent_span_id.hex() == PARENT
    assert request.kind == Span.SPAN_KIND_SERVER
    assert turn_span.parent_span_id == request.span_id
    assert call.parent_span_id == model.parent_span_id == turn_span.span_id
    assert call.kind == model.kind == Span.SPAN_KIND_CLIENT
    assert spans["initialize"].parent_span_id == spans["connect it"].span_id
    # The server got the context of the span of its call, in `_meta`.
    meta = json.loads(results[0]["body"]["text"])
    assert meta["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01"
    assert meta["tracestate"] == "vendor=1"
    assert collector.services == {"toolyard"}
    assert attributes(turn_span)["gen_ai.conversation.id"] == chat
    assert attributes(turn_span)["toolyard.turn.outcome"] == "done"
    assert attributes(request)["http.response.status_code"] == 202
    span_attributes = attributes(call)
    assert span_attributes["gen_ai.operation.name"] == "execute_tool"
    assert (span_attributes["mcp.method.name"], span_attributes["gen_ai.tool.name"]) == (
        "tools/call",
        "report",
    )
    assert (span_attributes["network.transport"], span_attributes["toolyard.server.id"]) == ("pipe", "it")
    assert span_attributes["jsonrpc.request.id"].isdigit()
    span_attributes = attributes(model)
    assert (span_attributes["gen_ai.provider.name"], span_attributes["gen_ai.request.model"]) == (
        "openai",
        "fake-1",
    )
    assert span_attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert span_attributes["gen_ai.usage.input_tokens"] > 0
    # Neither arguments nor results, nor the secret of the server's entry.
    assert SECRET not in str(collector.spans)


async def test_the_gateway_continues_the_trace_of_its_client(
    serve: Starting, collector: OtlpReceiver, reporting_url: str, wait_until: Until
) -> None:
    site = await serve({"it": {"type": "http", "url": reporting_url}}, **trace_settings(collector))
    header = f"00-{OTHER_TRACE}-{PARENT}-01"
    # The context in `_meta` counts, and that of the HTTP request where `_meta` has none.
    in_meta = {"traceparent": f"00-{TRACE}-{PARENT}-01", "baggage": "team=blue"}
    first = await call_gateway(site, in_meta, traceparent=header)
    await call_gateway(site, {}, traceparent=header)
    await wait_until(
        lambda: {"tools/call report", "tools/call it_report"} <= collector.of_trace(TRACE).keys()
    )
    await wait_until(lambda: "tools/call report" in collector.of_trace(OTHER_TRACE))
    spans = collector.of_trace(TRACE)
    call_span, client_span = spans["tools/call it_report"], spans["tools/call report"]
    assert call_span.parent_span_id.hex() == PARENT
    assert call_span.kind == Span.SPAN_KIND_SERVER
    assert attributes(call_span)["jsonrpc.request.id"] == "req-7"
    assert client_span.parent_span_id == call_span.span_id
    assert attributes(client_span)["server.address"] == "127.0.0.1"
    received = json.loads(first["content"][0]["text"])
    assert received["meta"]["traceparent"] == f"00-{TRACE}-{client_span.span_id.hex()}-01"
    assert received["meta"]["baggage"] == "team=blue"
    headers = {name.lower(): value for name, value in received["headers"].items()}
    assert headers["traceparent"] == received["meta"]["traceparent"]


async def test_an_invalid_trace_context_begins_a_new_trace(
    serve: Starting, collector: OtlpReceiver, reporting_url: str, wait_until: Until
) -> None:
    site = await serve({"it": {"type": "http", "url": reporting_url}}, **trace_settings(collector))
    for meta in (
        {"traceparent": 7, "tracestate": ["x"], "baggage": {}},
        {"traceparent": "00-nothing", "baggage": "a=b\r\nX-Evil: 1"},
        {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b\r\nX-Evil: 1"},
    ):
        received = json.loads((await call_gateway(site, meta))["content"][0]["text"])
        names = {name.lower() for name in received["headers"]}
        assert "x-evil" not in names
        assert received["meta"]["traceparent"] == received["headers"]["traceparent"]
    await wait_until(lambda: sum(span.name == "tools/call it_report" for span in collector.spans) == 3)


async def test_a_failed_tool_is_an_error_without_its_text(
    serve: Starting, collector: OtlpReceiver, tmp_path: Path, wait_until: Until
) -> None:
    site = await serve({"it": reporting_entry(tmp_path)}, **trace_settings(collector))
    result = await call_gateway(site, {"note": SECRET}, {"fail": True})
    assert result["isError"] is True
    await wait_until(lambda: any(span.name == "tools/call it_report" for span in collector.spans))
    failed_spans = {
        span.name: span for span in collector.spans if attributes(span).get("error.type") == "tool_error"
    }
    assert failed_spans.keys() == {"tools/call it_report", "tools/call report"}
    assert {span.status.message for span in failed_spans.values()} == {""}
    assert SECRET not in str(collector.spans)


async def test_content_is_recorded_where_the_operator_asks_for_it(
    serve: Starting,
    collector: OtlpReceiver,
    model_program: ListeningProgram,
    tmp_path: Path,
    wait_until: Until,
) -> None:
    site = await serve(
        {"it": reporting_entry(tmp_path)},
        TOOLYARD_MODEL="openai:fake-1",
        TOOLYARD_MODEL_BASE_URL=f"{model_program.url}/v1",
        TOOLYARD_MODEL_API_KEY="good",
        TOOLYARD_CHAT_TITLES="false",
        **trace_settings(collector, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY"),
    )
    client = HttpClient(site.url, {"traceparent": f"00-{TRACE}-{PARENT}-01"})
    try:
        chat = await chat_client.begin(client)
        await chat_client.say(client, chat, f'call it_report {{"word": "blue", "key": "{SECRET}"}}')
        await chat_client.wait_for_end(client, chat)
    finally:
        await client.close()
    await wait_until(lambda: {"chat fake-1", "tools/call report"} <= collector.of_trace(TRACE).keys())
    spans = collector.of_trace(TRACE)
    span_attributes = attributes(spans["tools/call report"])
    assert '"blue"' in span_attributes["gen_ai.tool.call.arguments"]
    assert "traceparent" in span_attributes["gen_ai.tool.call.result"]
    # Secrets of the server's entry stay hidden all the same.
    assert SECRET not in span_attributes["gen_ai.tool.call.arguments"]
    span_attributes = attributes(spans["chat fake-1"])
    assert "it_report" in json.dumps(json.loads(span_attributes["gen_ai.input.messages"]))
    assert json.loads(span_attributes["gen_ai.output.messages"])[0]["role"] == "assistant"
    assert SECRET not in str(collector.spans), "nor are they in the messages of a model"


async def test_a_token_request_is_a_span_without_secrets() -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"error": "invalid_grant", "error_description": SECRET}, status=400)

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    app = web.Application()
    app.router.add_post("/token", refuse)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        net = OutboundHttp(tracer=OtelTracer(provider))
        http_client = OAuthHttpClient(net, AddressPolicy(url, private_addresses=True))
        client = OAuthClient(url, "client-1", url, "entered", "client_secret_post", SECRET)
        form = {"grant_type": "refresh_token", "refresh_token": SECRET}
        with pytest.raises(TokenRefused):
            await request_tokens(http_client, f"{url}token", client, form, time.time())
        await net.close()
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 400
    assert span.attributes["toolyard.oauth.grant_type"] == "refresh_token"
    assert span.attributes["error.type"] == "TokenRefused"
    assert SECRET not in span.to_json()


def run_python(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(folder, **env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


LIST_TOOLS = """
import sys
from toolyard import Toolyard
with Toolyard.open_sync({"mcpServers": {}}) as yard:
    assert not yard.tools()
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


@pytest.mark.parametrize(
    "env",
    [{}, {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, {"OTEL_TRACES_EXPORTER": "none"}],
)
def test_without_the_variables_opentelemetry_is_not_loaded(tmp_path: Path, env: dict[str, str]) -> None:
    result = run_python(LIST_TOOLS, tmp_path, **env)
    assert result.stdout.strip() == "[]", result.stderr


def test_a_missing_extra_is_named_and_stops_nothing(tmp_path: Path) -> None:
    code = "import sys; sys.modules['opentelemetry.sdk'] = None\n" + LIST_TOOLS
    result = run_python(code, tmp_path, OTEL_TRACES_EXPORTER="otlp")
    assert result.returncode == 0, result.stderr
    assert "pip install 'toolyard[otel]'" in result.stderr


def test_a_collector_that_is_away_does_not_keep_a_command_running(
    tmp_path: Path, minimal_server: dict[str, Any]
) -> None:
    entry = tmp_path / "mcp.json"
    entry.write_text(json.dumps({"mcpServers": {"tiny": minimal_server}}))
    result = subprocess.run(
        [sys.executable, "-m", "toolyard", "tools"],
        env=environment(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "tiny" in result.stdout
