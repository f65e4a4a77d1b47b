"""Three providers at one address, each over its own streaming protocol: ``providers_server.py PORT``.

    Anthropic   POST /v1/messages                            Authorization: Bearer good
    Google      POST /v1/models/NAME:streamGenerateContent   x-goog-api-key: good
    OpenAI      POST /v1/responses                           Authorization: Bearer good

The last text of the user is the order: ``say WORDS`` (with ``think WORDS`` before it), ``call NAME {json}``,
or ``fault KIND`` (an HTTP status, die, cut, nothing, html, error). Another text is repeated. A request
that ends with a tool's result is answered ``It says: RESULT``. ``GET /journal`` tells the requests that came.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]
NUMBERS = itertools.count(1)
JOURNAL: list[Json] = []


@dataclass
class Order:
    """What the model is to do."""

    think: str = ""
    say: str = ""
    call: tuple[str, str] | None = None
    fault: str = ""

    @classmethod
    def of(cls, text: str) -> Order:
        order = cls()
        for line in text.splitlines():
            verb, _, rest = line.strip().partition(" ")
            if verb == "call":
                name, _, arguments = rest.partition(" ")
                order.call = (name, arguments or "{}")
            elif verb in ("say", "think", "fault"):
                setattr(order, verb, rest)
        if order.fault == "die":
            order.say = order.say or "Half an answer"
        return order if order != cls() else cls(say=f"You said: {text}")


def halves(text: str) -> Iterator[str]:
    yield text[: len(text) // 2]
    yield text[len(text) // 2 :]


# Anthropic.


def anthropic_order(body: Json) -> Order:
    content = body["messages"][-1]["content"]
    for block in [content] if isinstance(content, str) else reversed(content):
        if isinstance(block, str) or block["type"] == "text":
            return Order.of(block if isinstance(block, str) else block["text"])
        if block["type"] == "tool_result":
            reported_content = block["content"]
            return Order(
                say="It says: "
                + (reported_content if isinstance(reported_content, str) else reported_content[0]["text"])
            )
    return Order()


def anthropic_blocks(order: Order) -> Iterator[tuple[Json, list[Json]]]:
    if order.think:
        deltas = [{"type": "thinking_delta", "thinking": half} for half in halves(order.think)]
        signature_delta = {"type": "signature_delta", "signature": "c2VhbGVk"}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature_delta]
    if order.say:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": half} for half in halves(order.say)],
        )
    if order.call:
        name, arguments = order.call
        deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves(arguments)]
        yield {"type": "tool_use", "id": f"toolu_{next(NUMBERS)}", "name": name, "input": {}}, deltas


def anthropic_events(body: Json, order: Order) -> Iterator[Json]:
    message = {"id": f"msg_{next(NUMBERS)}", "type": "message", "role": "assistant", "content": []}
    message |= {"model": body["model"], "stop_reason": None, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 40}}
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    for index, (start, deltas) in enumerate(anthropic_blocks(order)):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if order.fault == "error":
        yield {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    if order.fault not in ("cut", "die"):
        delta = {"stop_reason": "tool_use" if order.call else "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}}
        yield {"type": "message_stop"}


def anthropic_error(status: int) -> Json:
    names = {
        401: "authentication_error",
        404: "not_found_error",
        429: "rate_limit_error",
        529: "overloaded_error",
    }
    kind = names.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": f"you asked for a {status}"}}


# Google.


def google_order(body: Json) -> Order:
    for part in reversed(body["contents"][-1]["parts"]):
        if "functionResponse" in part:
            response = part["functionResponse"]["response"]
            return Order(say=f"It says: {next(iter(response.values()))}")
        if "text" in part:
            return Order.of(part["text"])
    return Order()


def google_events(body: Json, order: Order) -> Iterator[Json]:
    parts: list[Json] = [{"text": half, "thought": True} for half in halves(order.think) if half]
    parts += [{"text": half} for half in halves(order.say) if half]
    if order.call:
        parts.append({"functionCall": {"name": order.call[0], "args": json.loads(order.call[1])}})
    base = {"modelVersion": "gemini-2.5-flash", "responseId": f"resp-{next(NUMBERS)}"}
    for part in parts:
        yield {**base, "candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]}
    if order.fault == "error":
        yield google_error(503)
    if order.fault not in ("cut", "die"):
        usage = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
        last = {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}
        yield {**base, "candidates": [last], "usageMetadata": usage}


def google_error(status: int) -> Json:
    message = (
        "API key not valid. Please pass a valid API key." if status == 400 else f"you asked for a {status}"
    )
    names = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
    names |= {503: "UNAVAILABLE"}
    error = {"code": status, "message": message, "status": names.get(status, "INTERNAL")}
    if status == 400:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
    return {"error": error}


# OpenAI's Responses.


def responses_order(body: Json) -> Order:
    last = body["input"][-1]
    if last.get("type") == "function_call_output":
        return Order(say=f"It says: {last['output']}")
    content = last["content"]
    return Order.of(content if isinstance(content, str) else content[0]["text"])


def responses_events(body: Json, order: Order) -> Iterator[Json]:
    numbers = itertools.count()
    whole: Json = {"id": f"resp_{next(NUMBERS)}", "object": "response", "created_at": 1_790_000_000}
    whole |= {
        "model": body["model"],
        "status": "in_progress",
        "output": [],
        "tools": [],
        "tool_choice": "auto",
    }
    whole |= {"parallel_tool_calls": True, "error": None, "incomplete_details": None, "instructions": None}

    def event(kind: str, **more: Any) -> Json:
        return {"type": f"response.{kind}", "sequence_number": next(numbers), **more}

    yield event("created", response=whole)
    output: list[Json] = []
    if order.say:
        item: Json = {
            "id": f"msg_{next(NUMBERS)}",
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
        }
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        part: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield event("output_item.added", output_index=0, item={**item, "content": []})
        yield event("content_part.added", part=part, **place)
        for half in halves(order.say):
            yield event("output_text.delta", delta=half, logprobs=[], **place)
        if order.fault in ("cut", "die"):
            return
        part = {**part, "text": order.say}
        yield event("output_text.done", text=order.say, logprobs=[], **place)
        yield event("content_part.done", part=part, **place)
        output.append({**item, "status": "completed", "content": [part]})
        yield event("output_item.done", output_index=0, item=output[-1])
    if order.call:
        name, arguments = order.call
        index = len(output)
        call: Json = {
            "id": f"fc_{next(NUMBERS)}",
            "type": "function_call",
            "call_id": f"call_{next(NUMBERS)}",
        }
        call |= {"name": name, "arguments": "", "status": "in_progress"}
        yield event("output_item.added", output_index=index, item=call)
        for half in halves(arguments):
            yield event("function_call_arguments.delta", item_id=call["id"], output_index=index, delta=half)
        call_done = {"item_id": call["id"], "output_index": index, "name": name, "arguments": arguments}
        yield event("function_call_arguments.done", **call_done)
        output.append({**call, "arguments": arguments, "status": "completed"})
        yield event("output_item.done", output_index=index, item=output[-1])
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    usage |= {"input_tokens_details": {"cached_tokens": 40}, "output_tokens_details": {"reasoning_tokens": 0}}
    if order.fault == "error":
        error_body = {"code": "server_error", "message": "the engine is overloaded"}
        yield event("failed", response={**whole, "status": "failed", "error": error_body})
    else:
        yield event("completed", response={**whole, "status": "completed", "output": output, "usage": usage})


def openai_error(status: int) -> Json:
    return {"error": {"message": f"you asked for a {status}", "type": "invalid_request_error", "code": None}}


# HTTP.


@dataclass
class ProviderApi:
    """How one of them speaks."""

    name: str
    key: Callable[[Request], str | None]
    refused: int
    order: Callable[[Json], Order]
    events: Callable[[Json, Order], Iterator[Json]]
    error: Callable[[int], Json]


def bearer(http: Request) -> str:
    return http.headers.get("authorization", "").removeprefix("Bearer ")


ANTHROPIC = ProviderApi(
    *("anthropic", bearer, 401),
    *(anthropic_order, anthropic_events, anthropic_error),
)
GOOGLE = ProviderApi(
    *("google", lambda http: http.headers.get("x-goog-api-key"), 400),
    *(google_order, google_events, google_error),
)
OPENAI = ProviderApi(
    *("openai", bearer, 401),
    *(responses_order, responses_events, openai_error),
)


class ConnectionBroken(Exception):
    """Ends a response in its middle, and the connection with it."""


async def stream(provider: ProviderApi, body: Json, order: Order) -> AsyncIterator[bytes]:
    for event in provider.events(body, order):
        name = f"event: {event['type']}\n" if "type" in event else ""
        yield f"{name}data: {json.dumps(event)}\n\n".encode()
    if order.fault == "die":
        raise ConnectionBroken


async def answer(http: Request, provider: ProviderApi) -> Response:
    body = await http.json()
    JOURNAL.append({"provider": provider.name, "path": http.url.path, "body": body})
    if provider.key(http) != "good":
        return JSONResponse(provider.error(provider.refused), provider.refused)
    order = provider.order(body)
    if order.fault.isdigit():
        status = int(order.fault)
        return JSONResponse(provider.error(status), status, {"retry-after": "40"})
    if order.fault == "html":
        return HTMLResponse("<html>Sign in first</html>")
    return StreamingResponse(stream(provider, body, order), media_type="text/event-stream")


async def anthropic(http: Request) -> Response:
    return await answer(http, ANTHROPIC)


async def google(http: Request) -> Response:
    return await answer(http, GOOGLE)


async def openai(http: Request) -> Response:
    return await answer(http, OPENAI)


async def journal(http: Request) -> Response:
    return JSONResponse(JOURNAL)


APP = Starlette(
    routes=[
        Route("/v1/messages", anthropic, methods=["POST"]),
        Route("/v1/models/{model}", google, methods=["POST"]),
        Route("/v1/responses", openai, methods=["POST"]),
        Route("/journal", journal),
    ]
)

if __name__ == "__main__":
    # Google's library names the user agent twice, which aiohttp's server would refuse.
    uvicorn.run(APP, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
