"""Prompts and resources of servers, for messages of chats.

Everything from a server is bounded here; pages escape it.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

from toolyard.agents.chat.attachments import AttachmentService
from toolyard.errors import BadAnswer, ServerError
from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.gateway import Gateway
from toolyard.registry.errors import NotFound
from toolyard.types.call import Caller, McpRequest
from toolyard.types.chat import Attachment
from toolyard.types.json_values import list_or_empty, object_or_empty
from toolyard.types.server import Server

__all__ = [
    "ContentArgument",
    "ContentItem",
    "ContentKind",
    "FetchedContent",
    "ServerContent",
    "attach_content",
]

ContentKind: TypeAlias = Literal["prompt", "resource"]
_METHODS: Mapping[ContentKind, tuple[str, ...]] = {
    "prompt": ("prompts/list",),
    "resource": ("resources/list", "resources/templates/list"),
}
_NAME_KEYS = {"prompts/list": "name", "resources/list": "uri", "resources/templates/list": "uriTemplate"}
_MAX_ARGUMENTS = 20
_MAX_NAME_CHARACTERS = 2_000
_MAX_TEXT_CHARACTERS = 400
_MAX_PROMPT_CHARACTERS = 200_000
_MAX_PROMPT_PICTURES = 8
_MAX_COMPLETIONS = 50
_MAX_COMPLETION_CHARACTERS = 200
_COMPLETION_TIMEOUT_SECONDS = 5.0
_PIECE_CHARACTERS = 64_000
_VARIABLE_PATTERN = re.compile(r"\{(\+?)([A-Za-z0-9_.]{1,64})\}")
"""Variables of a URI template (RFC 6570). Templates with other operators are not offered."""


@dataclass(frozen=True, slots=True)
class ContentArgument:
    """Argument of a prompt, or variable of a URI template."""

    name: str
    description: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class ContentItem:
    """A prompt, a resource or a URI template of a server."""

    kind: ContentKind
    server: str
    """Id of the server."""
    server_label: str
    name: str
    """Name of the prompt; URI or URI template of the resource."""
    title: str
    description: str = ""
    arguments: tuple[ContentArgument, ...] = ()

    def matches(self, words: str) -> bool:
        """Return whether all words occur in the item."""
        text = f"{self.title}\n{self.name}\n{self.server_label}\n{self.description}".casefold()
        return all(word in text for word in words.casefold().split())


@dataclass(frozen=True, slots=True)
class FetchedContent:
    """A part of a prompt or resource that becomes an attachment: a name for it, and its bytes in pieces."""

    name: str
    pieces: AsyncIterator[bytes]


class ServerContent:
    """Lists, completes and fetches prompts and resources that a caller can reach."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list(self, caller: Caller, kind: ContentKind, words: str) -> Sequence[ContentItem]:
        """Return the items that contain these words. Servers that fail or take long are left out."""
        view = CallerView(self._gateway, caller, None)
        servers = await view.servers_with_capability(f"{kind}s")
        found = await view.query_servers(
            servers, lambda server: self._list_one(caller, kind, server, wait=False)
        )
        items = [item for _, listed in found for item in listed]
        # In a thread, because servers may list tens of thousands.
        return await asyncio.to_thread(lambda: [item for item in items if item.matches(words)])

    async def find(self, caller: Caller, kind: ContentKind, server_id: str, name: str) -> ContentItem:
        """Return one item. Raises NotFound, or the ServerError of its server."""
        view = CallerView(self._gateway, caller, None)
        server = next((each for each in view.reachable_servers() if each.id == server_id), None)
        if server is None:
            raise NotFound(
                f"the server that offers this {kind} was removed, or is not available in this chat",
                hint="reconnect the server, or choose another prompt or resource",
            )
        try:
            items = await self._list_one(caller, kind, server, wait=True)
        except ServerError as error:
            self._gateway.call_path.redact_error(error)
            raise
        for item in items:
            if item.name == name:
                return item
        raise NotFound(f"the server no longer has this {kind}", hint="choose another prompt or resource")

    async def _list_one(
        self, caller: Caller, kind: ContentKind, server: Server, *, wait: bool
    ) -> Sequence[ContentItem]:
        items: list[ContentItem] = []
        for method in _METHODS[kind]:
            try:
                listing = await self._gateway.listing_cache.get(server, method, caller.principal, wait=wait)
            except ServerError:
                # Many servers have resources but no templates, and answer with an error.
                if method == "resources/templates/list":
                    continue
                raise
            items += await asyncio.to_thread(_read_items, kind, server, method, listing.items)
        return items

    async def complete(
        self, caller: Caller, item: ContentItem, argument: str, value: str, context: Mapping[str, str]
    ) -> Sequence[str]:
        """Return the server's suggestions for an argument; none if it has none, fails or takes long."""
        ref = {"type": "ref/prompt", "name": item.name}
        if item.kind == "resource":
            ref = {"type": "ref/resource", "uri": item.name}
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        try:
            async with asyncio.timeout(_COMPLETION_TIMEOUT_SECONDS):
                request = McpRequest("completion/complete", params, repeatable=True)
                result = await self._gateway.manager.send(item.server, caller, request)
        except (ServerError, TimeoutError):
            return ()
        values: object = object_or_empty(result.get("completion")).get("values")
        texts = list_or_empty(values)[:_MAX_COMPLETIONS]
        return [each for each in texts if isinstance(each, str) and len(each) <= _MAX_COMPLETION_CHARACTERS]

    async def fetch(
        self, caller: Caller, item: ContentItem, arguments: Mapping[str, str]
    ) -> Sequence[FetchedContent]:
        """Return the content of an item, followed by the pictures of a prompt. Raises a ServerError."""
        if item.kind == "prompt":
            request = McpRequest("prompts/get", {"name": item.name, "arguments": dict(arguments)})
        else:
            request = McpRequest("resources/read", {"uri": _expand_template(item.name, arguments)})
        try:
            result = await self._gateway.manager.send(item.server, caller, replace(request, repeatable=True))
            contents = _read_prompt(item, result) if item.kind == "prompt" else [_read_resource(item, result)]
        except ServerError as error:
            self._gateway.call_path.redact_error(error)
            raise
        names = [item.title, *(_name_picture(item, number) for number in range(1, len(contents)))]
        return [FetchedContent(name, pieces) for name, pieces in zip(names, contents, strict=True)]


async def attach_content(
    attachments: AttachmentService, owner: str, item: ContentItem, contents: Iterable[FetchedContent]
) -> Sequence[Attachment]:
    """Store the content of an item as attachments, all or none. Raises the errors of an upload."""
    stored: list[Attachment] = []
    try:
        for each in contents:
            upload = attachments.upload(
                owner, each.name, each.pieces, origin=item.kind, server=item.server_label
            )
            stored += [await upload]
    except BaseException:
        # Even if the request is cancelled: nobody knows these attachments, which would count against the
        # limits until they expire.
        for attachment in stored:
            await attachments.delete_unsent(owner, attachment.id)
        raise
    return stored


# Lists.


def _read_items(
    kind: ContentKind, server: Server, method: str, entries: Iterable[Mapping[str, Any]]
) -> Sequence[ContentItem]:
    items: list[ContentItem] = []
    for entry in entries:
        name = entry.get(_NAME_KEYS[method])
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARACTERS:
            continue
        arguments = _read_arguments(entry)
        if method == "resources/templates/list":
            if "{" in _VARIABLE_PATTERN.sub("", name):
                continue
            arguments = tuple(ContentArgument(each[2]) for each in _VARIABLE_PATTERN.finditer(name))
        title = _get_text(entry, "title") or _get_text(entry, "name") or name[:_MAX_TEXT_CHARACTERS]
        label = server.label or server.id
        items.append(
            ContentItem(kind, server.id, label, name, title, _get_text(entry, "description"), arguments)
        )
    return items


def _read_arguments(entry: Mapping[str, Any]) -> tuple[ContentArgument, ...]:
    listed: object = entry.get("arguments")
    found = list_or_empty(listed)[:_MAX_ARGUMENTS]
    entries = [cast("Mapping[str, Any]", each) for each in found if isinstance(each, dict)]
    return tuple(
        ContentArgument(name, _get_text(each, "description"), each.get("required") is True)
        for each in entries
        if (name := _get_text(each, "name"))
    )


def _get_text(entry: Mapping[str, Any], key: str) -> str:
    value: object = entry.get(key)
    return value[:_MAX_TEXT_CHARACTERS] if isinstance(value, str) else ""


def _expand_template(template: str, values: Mapping[str, str]) -> str:
    def expand(variable: re.Match[str]) -> str:
        # RFC 6570: ``{+name}`` keeps reserved characters of the value, ``{name}`` encodes them.
        value = values.get(variable[2], "")
        return quote(value, safe=":/?#[]@!$&'()*+,;=%" if variable[1] else "")

    return _VARIABLE_PATTERN.sub(expand, template)


# Content.


def _read_prompt(item: ContentItem, result: Mapping[str, Any]) -> Sequence[AsyncIterator[bytes]]:
    """Return the text of a prompt, and its pictures. The text says where each picture belongs."""
    messages = _read_objects(result.get("messages"))
    if not messages:
        raise BadAnswer("the prompt has no messages, or requires further input", server=item.server)
    pictures: list[AsyncIterator[bytes]] = []
    texts = [
        (message.get("role"), _read_block(item, message.get("content"), pictures)) for message in messages
    ]
    if any(role != "user" for role, _ in texts):
        text = "\n\n".join(f"{'User' if role == 'user' else 'Assistant'}: {each}" for role, each in texts)
    else:
        text = "\n\n".join(each for _, each in texts)
    if len(text) > _MAX_PROMPT_CHARACTERS:
        raise BadAnswer(
            f"the prompt has {len(text):,} characters; the maximum is {_MAX_PROMPT_CHARACTERS:,}",
            server=item.server,
        )
    return [_encode_text(text), *pictures]


def _read_block(item: ContentItem, content: object, pictures: list[AsyncIterator[bytes]]) -> str:
    """Return the text of a content block; of a picture its name, and of other blocks their kind.

    Add a picture to ``pictures``, unless there are too many.
    """
    block = object_or_empty(content)
    nested = object_or_empty(block.get("resource"))
    text: object = block.get("text", nested.get("text"))
    if isinstance(text, str):
        return text
    if (data := _get_picture_data(block, nested)) is not None and len(pictures) < _MAX_PROMPT_PICTURES:
        pictures.append(_decode_base64(item, data))
        return f"[image: {_name_picture(item, len(pictures))}]"
    return f"[{block.get('type')}: {block.get('uri') or nested.get('uri') or 'not included'}]"


def _get_picture_data(block: Mapping[str, Any], nested: Mapping[str, Any]) -> str | None:
    """Return the base64 data of an image, or of an embedded resource that is one."""
    data: object = None
    if block.get("type") == "image":
        data = block.get("data")
    elif str(nested.get("mimeType")).startswith("image/"):
        data = nested.get("blob")
    return data if isinstance(data, str) else None


def _name_picture(item: ContentItem, number: int) -> str:
    return f"{item.title}, picture {number}"


def _read_resource(item: ContentItem, result: Mapping[str, Any]) -> AsyncIterator[bytes]:
    contents = _read_objects(result.get("contents"))
    texts = [text for each in contents if isinstance(text := each.get("text"), str)]
    if texts:
        return _encode_text("\n\n".join(texts))
    blob = next((each.get("blob") for each in contents), None)
    if not isinstance(blob, str):
        raise BadAnswer("the server returned no content for this resource", server=item.server)
    return _decode_base64(item, blob)


async def _decode_base64(item: ContentItem, data: str) -> AsyncIterator[bytes]:
    """Decode data in pieces of whole groups of four characters: of 60 MB, it takes half a second."""
    for start in range(0, len(data), _PIECE_CHARACTERS):
        end = start + _PIECE_CHARACTERS
        try:
            piece = base64.b64decode(data[start:end], validate=True)
            if end < len(data) and len(piece) * 4 < _PIECE_CHARACTERS * 3:
                raise ValueError("padding before the end of the data")
        except ValueError:
            raise BadAnswer(
                f"the content of the {item.kind} is not valid base64", server=item.server
            ) from None
        yield piece


def _read_objects(value: object) -> Sequence[Mapping[str, Any]]:
    entries = list_or_empty(value)
    return [cast("Mapping[str, Any]", each) for each in entries if isinstance(each, dict)]


async def _encode_text(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield text[start : start + _PIECE_CHARACTERS].encode(errors="replace")
