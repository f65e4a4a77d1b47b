"""A model that does what it is told, over the OpenAI wire protocol: ``openai_server.py PORT``.

``POST /v1/chat/completions`` (streaming and not) and ``GET /v1/models``, with ``Authorization: Bearer good``.
Models are ``fake-1`` and whatever begins with ``fake``; others are answered 404.

The last user message is a script, line by line. Steps are separated by a line ``then``; the step is counted
by the assistant messages after that user message. Past the last step it says ``Done.``, and a message without
any such line is answered ``You said: …``.

    say WORDS           streamed word by word; a ``\\n`` in it is a line break
    think WORDS         the same, as reasoning
    fill N TEXT         streamed again and again, up to N characters; a ``\\n`` in it is a line break
    call NAME {json}    a tool call; several lines are parallel calls
    raw NAME text       a tool call with arguments that are this text
    many N NAME {json}  N calls at once; ``$n`` in the arguments is the number, from 1
    pace SECONDS        from here on a pause before every piece
    hold                nothing more until ``POST /release``
    image? audio?       says whether the last tool results or the user message carried one
    tools? results?     says the names of the tools that came; the texts of the last tool results
    fault KIND          an HTTP status (401, 429, 500 …), die, cut, nothing, html, garbage, error

A status may be followed by ``times=N`` (only for the first N requests with this script) and ``after=SECONDS``
(the header Retry-After). ``die``: half an answer, then the socket closes. ``cut``: the stream ends without a
finish. ``nothing``: an answer without content. ``garbage``: an event that is no JSON. ``error``: an error as
an event of the stream.

A request for the title of a chat is answered with the rest of the first line ``title TITLE`` of its message,
or with the first line; such a line is not part of a script. Such requests are not in the journal.

``GET /journal``: the requests that came, in order, each with ``model``, ``messages``, ``tools``, ``body``,
``key`` (was it right) and ``ended``: ``no`` (still going), ``yes``, ``aborted`` (the client left before).
``POST /release`` answers how many were held, ``POST /reset`` makes it as it was in the beginning. With
``--forget`` there is no journal, for runs that take long.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]
ORDERS = ("say", "think", "fill", "call", "raw", "many", "pace", "hold", "fault")
QUESTION_COMMANDS = ("image?", "audio?", "tools?", "results?")
DROP_MARK = "[dropped]"
TITLE_REQUEST = "Write a title for this conversation: "
NUMBERS = itertools.count(1)


class State:
    """What the server remembers."""

    def __init__(self, any_key: bool, forget: bool) -> None:
        self.any_key = any_key
        self.forget = forget
        self.journal: list[Json] = []
        self.held: set[asyncio.Event] = set()
        self.faults: Counter[str] = Counter()


STATE = web.AppKey("state", State)


# What to do.


def _texts(message: Json) -> list[str]:
    content = message.get("content") or ""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]


def _kinds(message: Json) -> set[str]:
    content = message.get("content")
    return {part["type"] for part in content} if isinstance(content, list) else set()


def _from_a_tool(message: Json) -> bool:
    """Pictures of tool results travel as user messages; whatever text is in them is a tag."""
    return bool(_kinds(message) - {"text"}) and all(text.startswith("<") for text in _texts(message))


@dataclass
class Request:
    """What came in, and the step that it asks for."""

    body: Json
    script: str = ""
    step: list[str] = field(default_factory=list)
    since: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        messages: list[Json] = self.body.get("messages") or []
        user_indexes = [n for n, m in enumerate(messages) if m["role"] == "user" and not _from_a_tool(m)]
        begin = user_indexes[-1] if user_indexes else 0
        self.since = messages[begin:]
        self.script = "\n".join(_texts(messages[begin])) if user_indexes else ""
        answer_count = sum(message["role"] == "assistant" for message in self.since)
        self.step = next(iter(_steps(self.script)[answer_count:]), ["say Done."])
        if self.script.startswith(TITLE_REQUEST):
            self.step = [f"say {_title(json.loads(self.script.removeprefix(TITLE_REQUEST))['user'])}"]

    def carried(self, kind: str) -> bool:
        """Did the user message, or what came after the last assistant message, carry such a part?"""
        return any(kind in _kinds(message) for message in self.after_assistant())

    def after_assistant(self) -> list[Json]:
        last = max((n for n, m in enumerate(self.since) if m["role"] == "assistant"), default=-1)
        return self.since[last + 1 :]

    def asked(self, command: str) -> str:
        if command == "tools?":
            return " ".join(tool["function"]["name"] for tool in self.body.get("tools") or []) or "none"
        if command == "results?":
            results = [m for m in self.after_assistant() if m["role"] == "tool"]
            return " | ".join(" ".join(_texts(message)) for message in results) or "none"
        kind = {"image?": "image_url", "audio?": "input_audio"}[command]
        return f"{command[:-1]}: {'yes' if self.carried(kind) else 'no'}"


def _title(text: str) -> str:
    titles = [line.removeprefix("title ") for line in text.splitlines() if line.startswith("title ")]
    return titles[0] if titles else text.strip().partition("\n")[0]


def _steps(script: str) -> list[list[str]]:
    lines = [line.strip() for line in script.splitlines() if not line.startswith("title ")]
    if not any(line in QUESTION_COMMANDS or line.split(" ")[0] in ORDERS for line in lines):
        return [[f"say You said: {script.strip()}"]]
    steps: list[list[str]] = [[]]
    for line in lines:
        if line == "then":
            steps.append([])
        else:
            steps[-1].append(line)
    return steps


def _words(text: str) -> Iterator[str]:
    for n, word in enumerate(text.replace("\\n", "\n").split(" ")):
        yield word if n == 0 else f" {word}"


def _calls(order: str, rest: str) -> Iterator[tuple[str, str]]:
    times, words = 1, rest
    if order == "many":
        count, _, words = rest.partition(" ")
        times = int(count)
    name, _, arguments = words.partition(" ")
    for n in range(1, times + 1):
        yield name, (arguments or "{}").replace("$n", str(n)) if order != "raw" else arguments


async def _deltas(request: Request, state: State) -> AsyncIterator[Json | str]:
    """What is streamed, piece by piece; a string is raw text that replaces a piece, or DROPPED."""
    pace, calls = 0.0, itertools.count()
    for line in request.step:
        order, _, rest = line.partition(" ")
        if order == "pace":
            pace = float(rest)
        elif order == "hold":
            released = asyncio.Event()
            state.held.add(released)
            await released.wait()
        elif order in ("say", "think") or line in QUESTION_COMMANDS:
            key = "reasoning_content" if order == "think" else "content"
            for word in _words(request.asked(line) if line in QUESTION_COMMANDS else rest):
                await asyncio.sleep(pace)
                yield {key: word}
        elif order == "fill":
            count, _, text = rest.partition(" ")
            piece = text.replace("\\n", "\n")
            for _ in range(int(count) // len(piece)):
                await asyncio.sleep(pace)
                yield {"content": piece}
        elif order in ("call", "raw", "many"):
            for name, arguments in _calls(order, rest):
                for piece in _call_pieces(next(calls), name, arguments):
                    await asyncio.sleep(pace)
                    yield {"tool_calls": [piece]}
        elif order == "fault":
            for piece in _broken(rest):
                yield piece


def _call_pieces(index: int, name: str, arguments: str) -> Iterator[Json]:
    function = {"name": name, "arguments": ""}
    yield {"index": index, "id": f"call_{next(NUMBERS)}", "type": "function", "function": function}
    # Each piece costs the reader about as much, however long it is.
    size = max(7, len(arguments) // 500)
    for start in range(0, len(arguments), size):
        yield {"index": index, "function": {"arguments": arguments[start : start + size]}}


def _broken(kind: str) -> Iterator[Json | str]:
    if kind == "die":
        yield {"content": "Half an"}
        yield {"content": " ans"}
        yield DROP_MARK
    elif kind == "garbage":
        yield "{this is no JSON"
    elif kind == "error":
        yield json.dumps({"error": {"message": "the engine is overloaded", "type": "server_error"}})


# HTTP.


def _error(status: int, message: str, code: str, **headers: str) -> web.Response:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    return web.json_response(body, status=status, headers=headers)


def _refusal(request: Request, state: State) -> web.Response | None:
    """The answer of a step that fails before it begins."""
    for line in request.step:
        order, _, rest = line.partition(" ")
        kind, *options = rest.split(" ")
        if order != "fault" or not (kind.isdigit() or kind == "html"):
            continue
        if kind == "html":
            return web.Response(text="<html><body>Sign in first</body></html>", content_type="text/html")
        option_values = dict(option.split("=") for option in options)
        state.faults[request.script] += 1
        if state.faults[request.script] <= int(option_values.get("times", 1_000_000)):
            headers = {"retry-after": option_values["after"]} if "after" in option_values else {}
            return _error(int(kind), f"you asked for a {kind}", f"fault_{kind}", **headers)
    return None


def _usage(request: Request, output_tokens: int) -> Json:
    read = len(json.dumps(request.body.get("messages"))) // 4
    return {
        "prompt_tokens": read,
        "completion_tokens": output_tokens,
        "total_tokens": read + output_tokens,
        "prompt_tokens_details": {"cached_tokens": read // 2},
    }


def _finish(request: Request) -> str | None:
    orders = {line.split(" ")[0] for line in request.step}
    if "fault cut" in request.step:
        return None
    return "tool_calls" if orders & {"call", "raw", "many"} else "stop"


async def _stream(http: web.Request, request: Request, state: State) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(http)
    usage = bool((request.body.get("stream_options") or {}).get("include_usage"))
    base = {"id": f"chatcmpl-{next(NUMBERS)}", "object": "chat.completion.chunk", "created": 1_790_000_000}
    base |= {"model": request.body["model"], "usage": None} if usage else {"model": request.body["model"]}

    async def event(data: str) -> None:
        await response.write(f"data: {data}\n\n".encode())

    async def chunk(delta: Json, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        await event(json.dumps({**base, "choices": [choice]}))

    await chunk({"role": "assistant", "content": ""})
    output_tokens = 0
    async for piece in _deltas(request, state):
        output_tokens += 1
        if piece == DROP_MARK:
            assert http.transport is not None
            http.transport.close()
            return response
        await (event(piece) if isinstance(piece, str) else chunk(piece))
    if (finish := _finish(request)) is not None:
        await chunk({}, finish)
        if usage:
            await event(json.dumps({**base, "choices": [], "usage": _usage(request, output_tokens)}))
        await event("[DONE]")
    await response.write_eof()
    return response


async def _whole(request: Request, state: State) -> web.Response:
    message: Json = {"role": "assistant", "content": "", "reasoning_content": ""}
    calls: dict[int, Json] = {}
    output_tokens = 0
    async for piece in _deltas(request, state):
        output_tokens += 1
        for key in ("content", "reasoning_content"):
            message[key] += piece.get(key, "") if isinstance(piece, dict) else ""
        for call in piece.get("tool_calls", []) if isinstance(piece, dict) else []:
            if "id" in call:
                calls[call["index"]] = {key: call[key] for key in ("id", "type", "function")}
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    if calls:
        message["tool_calls"] = list(calls.values())
    body = {"id": f"chatcmpl-{next(NUMBERS)}", "object": "chat.completion", "created": 1_790_000_000}
    body |= {"model": request.body["model"], "usage": _usage(request, output_tokens)}
    body |= {"choices": [{"index": 0, "message": message, "finish_reason": _finish(request) or "stop"}]}
    return web.json_response(body)


def _let_in(http: web.Request) -> bool:
    return http.app[STATE].any_key or http.headers.get("authorization") == "Bearer good"


async def completions(http: web.Request) -> web.StreamResponse:
    state, body = http.app[STATE], await http.json()
    entry = {"model": body.get("model"), "messages": body.get("messages"), "tools": body.get("tools") or []}
    entry |= {"body": body, "key": _let_in(http), "ended": "no"}
    if not state.forget and not Request(body).script.startswith(TITLE_REQUEST):
        state.journal.append(entry)
    try:
        response = await _answer(http, body, state)
    except (asyncio.CancelledError, ConnectionError):
        entry["ended"] = "aborted"
        raise
    entry["ended"] = "yes"
    return response


async def _answer(http: web.Request, body: Json, state: State) -> web.StreamResponse:
    if not _let_in(http):
        return _error(401, "Incorrect API key provided.", "invalid_api_key")
    if not str(body.get("model")).startswith("fake"):
        return _error(404, f"The model `{body.get('model')}` does not exist.", "model_not_found")
    request = Request(body)
    if (refusal := _refusal(request, state)) is not None:
        return refusal
    return await (_stream(http, request, state) if body.get("stream") else _whole(request, state))


async def models(http: web.Request) -> web.Response:
    if not _let_in(http):
        return _error(401, "Incorrect API key provided.", "invalid_api_key")
    models = [{"id": "fake-1", "object": "model", "created": 1_790_000_000, "owned_by": "tests"}]
    return web.json_response({"object": "list", "data": models})


async def journal(http: web.Request) -> web.Response:
    return web.json_response(http.app[STATE].journal)


async def release(http: web.Request) -> web.Response:
    held_requests, http.app[STATE].held = http.app[STATE].held, set()
    for event in held_requests:
        event.set()
    return web.json_response({"released": len(held_requests)})


async def reset(http: web.Request) -> web.Response:
    state = http.app[STATE]
    state.journal, state.faults = [], Counter()
    return await release(http)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--any-key", action="store_true")
    parser.add_argument("--forget", action="store_true")
    options = parser.parse_args()
    app = web.Application(client_max_size=256 * 1024 * 1024)
    app[STATE] = State(options.any_key, options.forget)
    app.router.add_post("/v1/chat/completions", completions)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/journal", journal)
    app.router.add_post("/release", release)
    app.router.add_post("/reset", reset)
    web.run_app(
        app, host="127.0.0.1", port=options.port, print=None, handler_cancellation=True, access_log=None
    )


if __name__ == "__main__":
    main()
