"""A server with the fixtures of the official suite, by the official SDK: ``origin_server.py [--port N]``.

It speaks both eras. It requests input of its client by the rules of the era: in rounds in the modern one, by
requests of its own in the legacy one, which then carry the name that the question has in the modern era.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import functools
import hashlib
import hmac
import json
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from toolyard.clients.callbacks import INPUT_NAME_META_KEY

warnings.simplefilter("ignore")  # The suite uses parts that the SDK has deprecated.

MODERN = "2026-07-28"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0\x80>\0\0\2\0\x10\0data\0\0\0\0"
).decode()
KEY = b"only for tests"

Tool = Callable[[Any, dict[str, Any], types.CallToolRequestParams], Awaitable[Any]]
TOOLS: dict[str, tuple[dict[str, Any], str, Tool]] = {}
bus = InMemorySubscriptionBus()


def tool(name: str, schema: dict[str, Any] | None = None) -> Callable[[Tool], Tool]:
    def keep(function: Tool) -> Tool:
        TOOLS[name] = (schema or {"type": "object", "properties": {}}, name.replace("_", " "), function)
        return function

    return keep


def text(words: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)], **more)


# Client input.


def form(message: str, properties: dict[str, Any], required_names: list[str] | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required_names:
        schema["required"] = required_names
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(words: str, tokens: int = 100) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": words}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}
KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


async def inputs(
    ctx: Any, params: Any, requests_by_name: Mapping[str, dict[str, Any]], state: str | None = None
) -> Mapping[str, Any] | types.InputRequiredResult:
    """Return the client's answers by name; in the modern era first return the result that requests them."""
    if ctx.protocol_version >= MODERN:
        input_responses = params.input_responses or {}
        if all(name in input_responses for name in requests_by_name):
            return input_responses
        input_requests = {
            name: KINDS[one["method"]][0].model_validate(one) for name, one in requests_by_name.items()
        }
        return types.InputRequiredResult(input_requests=input_requests, request_state=state)
    answers = await asyncio.gather(*(request(ctx, name, one) for name, one in requests_by_name.items()))
    return dict(zip(requests_by_name, answers, strict=True))


async def request(ctx: Any, name: str, one: dict[str, Any]) -> Any:
    request_model, result_model = KINDS[one["method"]]
    params = {**one["params"], "_meta": {INPUT_NAME_META_KEY: name}}
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    input_request = request_model.model_validate({**one, "params": params})
    return await ctx.session.send_request(input_request, result_model, metadata=metadata)


def seal_state(words: str) -> str:
    return f"{words}.{hmac.new(KEY, words.encode(), hashlib.sha256).hexdigest()}"


def open_state(state: str | None) -> str:
    words = (state or "").rpartition(".")[0]
    if state is None or not hmac.compare_digest(seal_state(words), state):
        raise MCPError(-32602, "requestState failed its integrity check")
    return words


# The tools of the suite.


@tool("test_simple_text")
async def simple_text(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return text("This is a simple text response for testing.")


@tool("test_image_content")
async def image(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return types.CallToolResult(content=[types.ImageContent(type="image", data=PNG, mime_type="image/png")])


@tool("test_audio_content")
async def audio(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return types.CallToolResult(content=[types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")])


def embed_text(uri: str, words: str, mime: str = "text/plain") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime, text=words)
    return types.EmbeddedResource(type="resource", resource=contents)


@tool("test_embedded_resource")
async def resource(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    block = embed_text("test://embedded-resource", "This is an embedded resource content.")
    return types.CallToolResult(content=[block])


@tool("test_multiple_content_types")
async def mixed_content(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="Multiple content types test:"),
            types.ImageContent(type="image", data=PNG, mime_type="image/png"),
            embed_text("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
        ]
    )


async def say(ctx: Any, words: str) -> None:
    await ctx.session.send_log_message("info", words, "origin", related_request_id=ctx.request_id)


@tool("test_tool_with_logging")
async def logging(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await say(ctx, words)
        await asyncio.sleep(0.05)
    return text("Logged three times")


TOOLS["test_logging_tool"] = TOOLS["test_tool_with_logging"]


@tool("test_error_handling")
async def error(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return text("This tool intentionally returns an error for testing", is_error=True)


@tool("test_tool_with_progress")
async def progress(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    for percentages in (0, 50, 100):
        await ctx.session.report_progress(percentages, 100, f"{percentages} of 100")
        await asyncio.sleep(0.05)
    return text("Progressed")


@tool(
    "test_sampling", {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}
)
async def sampling(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    answers = await inputs(ctx, params, {"sample": sample(arguments.get("prompt", ""))})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"LLM response: {getattr(answers['sample'].content, 'text', '')}")


async def elicit_form(
    ctx: Any, params: Any, message: str, properties: dict[str, Any], required_names: Any = None
) -> Any:
    answers = await inputs(ctx, params, {"form": form(message, properties, required_names)})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    answer = answers["form"]
    return text(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")


@tool(
    "test_elicitation",
    {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
)
async def elicitation(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return await elicit_form(ctx, params, arguments.get("message", ""), fields, ["username", "email"])


@tool("test_elicitation_sep1034_defaults")
async def defaults(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await elicit_form(ctx, params, "Please review the defaults", fields)


@tool("test_elicitation_sep1330_enums")
async def enums(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    options = ["option1", "option2", "option3"]
    titled_options = [
        {"const": f"value{n}", "title": f"{word} Option"}
        for n, word in ((1, "First"), (2, "Second"), (3, "Third"))
    ]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled_options},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled_options}},
    }
    return await elicit_form(ctx, params, "Please choose", fields)


@tool("test_reconnection")
async def reconnection(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
        await asyncio.sleep(0.1)
    return text("Reconnection test completed")


@tool(
    "json_schema_2020_12_tool",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return text(json.dumps(arguments))


@tool(
    "test_x_mcp_header",
    {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
        "required": ["region"],
    },
)
async def x_mcp_header(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return text(f"region {arguments.get('region')}")


@tool("test_missing_capability")
async def missing_capability(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        capability_error = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(-32021, "this needs a client that can sample", capability_error)
    return text("The client can sample")


@tool("test_streaming_elicitation")
async def streaming(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    await ctx.session.report_progress(1, 2)
    return await elicit_form(ctx, params, "Who are you?", {"name": {"type": "string"}})


@tool("test_trigger_tool_change")
async def tool_change(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    await bus.publish(ToolsListChanged())
    if ctx.protocol_version < MODERN:
        await ctx.session.send_tool_list_changed()
    return text("The tools changed")


@tool("test_trigger_prompt_change")
async def prompt_change(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    await bus.publish(PromptsListChanged())
    if ctx.protocol_version < MODERN:
        await ctx.session.send_prompt_list_changed()
    return text("The prompts changed")


# In several rounds.

NAME = {"name": {"type": "string"}}
OK = {"ok": {"type": "boolean"}}


@tool("test_input_required_result_elicitation")
async def ask_name(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    answers = await inputs(ctx, params, {"user_name": form("What is your name?", NAME, ["name"])})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"Hello, {(answers['user_name'].content or {}).get('name')}!")


@tool("test_input_required_result_sampling")
async def ask_model(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    input_requests = {"capital_question": sample("What is the capital of France?")}
    answers = await inputs(ctx, params, input_requests)
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"The model says: {getattr(answers['capital_question'].content, 'text', '')}")


@tool("test_input_required_result_list_roots")
async def ask_roots(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    answers = await inputs(ctx, params, {"client_roots": ROOTS})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"Roots: {', '.join(str(root.uri) for root in answers['client_roots'].roots)}")


async def confirm_state(ctx: Any, params: Any) -> Any:
    answers = await inputs(ctx, params, {"confirm": form("Please confirm", OK, ["ok"])}, seal_state("asked"))
    if isinstance(answers, types.InputRequiredResult):
        return answers
    if ctx.protocol_version >= MODERN:
        open_state(params.request_state)
    return text("state-ok")


@tool("test_input_required_result_request_state")
async def ask_with_state(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return await confirm_state(ctx, params)


@tool("test_input_required_result_tampered_state")
async def ask_with_tampered_state(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    return await confirm_state(ctx, params)


@tool("test_input_required_result_multiple_inputs")
async def ask_all(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    input_requests = {
        "user_name": form("What is your name?", NAME, ["name"]),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    answers = await inputs(ctx, params, input_requests, seal_state("all"))
    return answers if isinstance(answers, types.InputRequiredResult) else text("All answered")


@tool("test_input_required_result_multi_round")
async def ask_twice(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    first = {"step1": form("Step 1: What is your name?", NAME, ["name"])}
    second = {"step2": form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])}
    if ctx.protocol_version < MODERN:
        await inputs(ctx, params, first)
        await inputs(ctx, params, second)
        return text("Both answered")
    if params.request_state is None:
        return await inputs(ctx, params, first, seal_state("one"))
    state = seal_state("two") if open_state(params.request_state) == "one" else None
    answers = await inputs(ctx, params, second, state)
    return answers if isinstance(answers, types.InputRequiredResult) else text("Both answered")


@tool("test_input_required_result_capabilities")
async def ask_what_can_be(ctx: Any, arguments: dict[str, Any], params: Any) -> Any:
    capabilities = ctx.session.client_capabilities
    input_requests: dict[str, dict[str, Any]] = {}
    if capabilities is not None and capabilities.sampling is not None:
        input_requests["question"] = sample("What is the capital of France?")
    if capabilities is not None and capabilities.elicitation is not None:
        input_requests["name"] = form("What is your name?", NAME)
    answers = await inputs(ctx, params, input_requests)
    return answers if isinstance(answers, types.InputRequiredResult) else text("Answered")


# Handlers.


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    tools = [
        types.Tool(name=name, description=words, input_schema=schema)
        for name, (schema, words, _) in sorted(TOOLS.items())
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
    if params.name not in TOOLS:
        raise MCPError(-32602, f"Unknown tool: {params.name}")
    return await TOOLS[params.name][2](ctx, params.arguments or {}, params)


RESOURCES = {
    "test://static-text": ("Static text", "text/plain"),
    "test://static-binary": ("Static binary", "image/png"),
    "test://watched-resource": ("Watched", "text/plain"),
}


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=uri, name=name, description=name, mime_type=mime)
            for uri, (name, mime) in RESOURCES.items()
        ]
    )


async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template="test://template/{id}/data",
        name="Template",
        description="A template",
        mime_type="application/json",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    contents: types.TextResourceContents | types.BlobResourceContents
    if uri == "test://static-binary":
        contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    elif uri in RESOURCES:
        words = "This is the content of the static text resource."
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=words)
    elif uri.startswith("test://template/"):
        id = uri.removeprefix("test://template/").removesuffix("/data")
        words = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
        contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=words)
    else:
        code = -32602 if ctx.protocol_version >= MODERN else -32002
        raise MCPError(code, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[contents])


async def subscribe(ctx: Any, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


def prompt(name: str, *arguments: str) -> types.Prompt:
    prompt_arguments = [
        types.PromptArgument(name=each, description=each, required=True) for each in arguments
    ]
    return types.Prompt(name=name, description=name.replace("_", " "), arguments=prompt_arguments)


PROMPTS = [
    prompt("test_simple_prompt"),
    prompt("test_prompt_with_arguments", "arg1", "arg2"),
    prompt("test_prompt_with_embedded_resource", "resourceUri"),
    prompt("test_prompt_with_image"),
    prompt("test_input_required_result_prompt"),
]


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=PROMPTS)


async def get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> Any:
    arguments = params.arguments or {}
    blocks: list[Any]
    if params.name == "test_simple_prompt":
        blocks = [types.TextContent(type="text", text="This is a simple prompt for testing.")]
    elif params.name == "test_prompt_with_arguments":
        words = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
        blocks = [types.TextContent(type="text", text=words)]
    elif params.name == "test_prompt_with_embedded_resource":
        blocks = [
            embed_text(arguments.get("resourceUri", ""), "Embedded resource content for testing."),
            types.TextContent(type="text", text="Please process the embedded resource above."),
        ]
    elif params.name == "test_prompt_with_image":
        blocks = [
            types.ImageContent(type="image", data=PNG, mime_type="image/png"),
            types.TextContent(type="text", text="Please analyze the image above."),
        ]
    elif params.name == "test_input_required_result_prompt":
        question = form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])
        answers = await inputs(ctx, params, {"user_context": question})
        if isinstance(answers, types.InputRequiredResult):
            return answers
        context = (answers["user_context"].content or {}).get("context")
        blocks = [types.TextContent(type="text", text=f"Use this context: {context}")]
    else:
        raise MCPError(-32602, f"Unknown prompt: {params.name}")
    messages = [types.PromptMessage(role="user", content=block) for block in blocks]
    return types.GetPromptResult(messages=messages)


async def complete(ctx: Any, params: Any) -> types.CompleteResult:
    completions = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
    return types.CompleteResult(
        completion=types.Completion(values=completions, total=len(completions), has_more=False)
    )


class Events(EventStore):
    """All sent events, for clients that reconnect."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        place = int(last_event_id)
        stream = self._events[place][0]
        for number, (owner, message) in enumerate(self._events):
            if number > place and owner == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def make() -> Server[Any]:
    server: Server[Any] = Server(
        "origin",
        version="1.0.0",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=subscribe,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=subscribe,
        get_tool_input_schema=lambda name: TOOLS[name][0] if name in TOOLS else None,
    )
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    make_options = server.create_initialization_options
    server.create_initialization_options = functools.partial(make_options, changes)  # pyright: ignore
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    app = make().streamable_http_app(event_store=Events(), retry_interval=300)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", http="h11")


if __name__ == "__main__":
    main()
