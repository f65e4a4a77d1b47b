"""Review of calls that need approval, in words for people, and validity of standing approvals."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from yarl import URL

from toolyard.agents.chat.approval_grants import is_same_json
from toolyard.agents.chat.argument_review import LONG_VALUE_CHARACTERS, short_values_first
from toolyard.catalog.hashes import definition_hash
from toolyard.catalog.lock.changes import diff_text
from toolyard.catalog.schemas.form_fields import SchemaField, read_schema_fields
from toolyard.clients.manager import ConnectionManager
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.store.repositories.approvals import SqlApprovalStore
from toolyard.types.account import Principal
from toolyard.types.approval import Approval, Grant
from toolyard.types.server import HttpSpec, Server
from toolyard.types.tool import Definition, JsonObject
from toolyard.types.visible_text import visible
from toolyard.web.public_urls import build_changes_path

__all__ = ["ApprovalExplainer", "ApprovalReview", "GrantState", "ReviewedArgument", "describe_arguments"]

ArgumentChange: TypeAlias = Literal["", "same", "changed", "new", "removed"]
_SECRET_FORMATS = ("password",)
_MAX_DIFF_CHARACTERS = 50_000
_MAX_ONE_LINE_CHARACTERS = 80
"""Length of JSON above which it is indented."""


@dataclass(frozen=True, slots=True)
class ReviewedArgument:
    """An argument with the words of the tool's schema, and its difference from the last approved call."""

    name: str
    title: str
    help: str
    value: str
    is_json: bool
    is_long: bool
    change: ArgumentChange = ""
    """Empty without an earlier call."""
    before: str = ""
    """The earlier value of a changed argument, if it is short."""
    diff: tuple[str, ...] = ()
    """Changed lines of a long text, each with its sign in front."""
    is_known: bool = True
    """False if the schema does not name it."""

    @property
    def shown_name(self) -> str:
        """The whole name, with escapes; in quotes if it might be taken for another one."""
        is_word = re.fullmatch(r"\S+", self.name)
        return visible(self.name if is_word else json.dumps(self.name, ensure_ascii=False), spaces=True)


@dataclass(frozen=True, slots=True)
class ApprovalReview:
    """A call that needs approval, in words for people."""

    approval: Approval
    title: str
    """Title or name of the tool."""
    sentence: str
    server: str
    account: str
    """Whose connection the call uses, and where it leads."""
    arguments: Sequence[ReviewedArgument]
    previous: Approval | None
    """The last call of this tool that the person approved; None without one."""


@dataclass(frozen=True, slots=True)
class GrantState:
    """Whether a standing approval is in force. ``review`` is the page where the change can be seen."""

    server: str
    problem: str = ""
    """Why it is out of force; empty if it is in force, or if that is not known."""
    review: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalExplainer:
    """Explains calls and standing approvals by the definitions that are known, without connecting."""

    _approvals: SqlApprovalStore
    _tool_directory: ToolDirectory
    _manager: ConnectionManager

    async def explain(self, principal: Principal, approvals: Iterable[Approval]) -> list[ApprovalReview]:
        """Return what to read before answering each approval."""
        definitions = await self._load_definitions(principal)
        reviews: list[ApprovalReview] = []
        for approval in approvals:
            previous = await self._approvals.find_last_approved(approval.owner, approval.tool)
            definition = definitions.get(approval.tool)
            server = None if definition is None else self._manager.find(definition.server_id, principal)
            # In a thread: arguments may be long.
            reviews.append(await asyncio.to_thread(_build_review, approval, previous, definition, server))
        return reviews

    async def check_grants(self, principal: Principal, grants: Iterable[Grant]) -> list[GrantState]:
        """Return whether each standing approval is in force."""
        definitions = await self._load_definitions(principal)
        listed_servers = {each.server_id for each in definitions.values()}
        states: list[GrantState] = []
        for each in grants:
            states.append(self._check_grant(principal, each, definitions, listed_servers))
            await asyncio.sleep(0)  # The hash of a long definition takes milliseconds.
        return states

    async def _load_definitions(self, principal: Principal) -> dict[str, Definition]:
        listing = self._tool_directory.known_listing(principal)
        if not listing.tools:
            listing = await self._tool_directory.load_stored(principal)
        return {each.id: each for each in listing.tools.values()}

    def _check_grant(
        self,
        principal: Principal,
        grant: Grant,
        definitions: Mapping[str, Definition],
        listed_servers: Collection[str],
    ) -> GrantState:
        definition = definitions.get(grant.tool)
        server_id = grant.tool.rpartition("/")[0] if definition is None else definition.server_id
        server = self._manager.find(server_id, principal)
        if server is None:
            return GrantState(server_id, "its server is no longer available to you")
        name = server.label or server.id
        if definition is None:
            # The server may not have been listed yet, which says nothing about the tool.
            is_listed = server_id in listed_servers
            return GrantState(name, "the server no longer has this tool" if is_listed else "")
        if definition_hash(definition) == grant.definition_hash:
            return GrantState(name)
        problem = "the tool’s definition changed after you approved it"
        return GrantState(name, problem, build_changes_path(server))


def _build_review(
    approval: Approval, previous: Approval | None, definition: Definition | None, server: Server | None
) -> ApprovalReview:
    schema: JsonObject = {} if definition is None else definition.input_schema
    title = approval.name if definition is None else definition.title or definition.name
    return ApprovalReview(
        approval,
        title,
        approval.reason if definition is None else _describe_effect(definition),
        approval.tool.rpartition("/")[0] if server is None else server.label or server.id,
        "" if server is None else _describe_account(server),
        describe_arguments(schema, approval.arguments, None if previous is None else previous.arguments),
        previous,
    )


def _describe_effect(definition: Definition) -> str:
    if definition.annotations.get("destructiveHint") is True and definition.read_only_hint is not True:
        return "This tool can change, delete or overwrite data."
    match definition.read_only_hint:
        case False:
            return "This tool can change data."
        case None:
            return "This tool may change data: its server does not say whether it does."
        case True:
            return "The server says that this tool only reads data, but its rules require your approval."


def _describe_account(server: Server) -> str:
    host = URL(server.transport.url).raw_host if isinstance(server.transport, HttpSpec) else None
    where = f" at {host}" if host else ""
    if server.instance is None:
        return f"Uses the connection{where} that is configured for this Toolyard."
    spec, access = server.transport, "without a sign-in"
    if server.oauth is not None:
        access = "with your sign-in"
    elif isinstance(spec, HttpSpec) and (spec.headers or spec.query):
        access = "with your key"
    return f"Uses your own connection{where}, {access}."


def describe_arguments(
    schema: JsonObject, arguments: JsonObject, previous: JsonObject | None
) -> list[ReviewedArgument]:
    """Return all arguments, short values first, so that a long one cannot push others out of view, and then
    those that an earlier call had and this one has not."""
    fields = {each.name: each for each in read_schema_fields(schema)}
    members = cast("JsonObject", short_values_first(arguments))
    reviewed = [_review_argument(name, members[name], fields.get(name), previous) for name in members]
    removed = [name for name in previous or {} if name not in arguments]
    return [*reviewed, *(_review_removed(name, fields.get(name)) for name in removed)]


def _review_argument(
    name: str, value: object, field: SchemaField | None, previous: JsonObject | None
) -> ReviewedArgument:
    text = _format_value(value)
    change: ArgumentChange = ""
    before, diff = "", tuple[str, ...]()
    if previous is not None:
        change = "new" if name not in previous else "changed"
        if change == "changed" and is_same_json(previous[name], value):
            change = "same"
    # A secret of an earlier call is not shown again.
    if change == "changed" and previous is not None and not _is_secret(field):
        earlier = _format_value(previous[name])
        is_short = len(earlier) <= LONG_VALUE_CHARACTERS and "\n" not in earlier
        before = earlier if is_short else ""
        if not is_short and len(earlier) + len(text) <= _MAX_DIFF_CHARACTERS:
            diff = tuple(diff_text(earlier, text))
    return ReviewedArgument(
        name,
        "" if field is None else field.title,
        "" if field is None else field.help,
        text,
        not isinstance(value, str),
        len(text) > LONG_VALUE_CHARACTERS or "\n" in text,
        change,
        before,
        diff,
        field is not None,
    )


def _review_removed(name: str, field: SchemaField | None) -> ReviewedArgument:
    title = "" if field is None else field.title
    return ReviewedArgument(name, title, "", "", False, False, "removed", is_known=field is not None)


def _is_secret(field: SchemaField | None) -> bool:
    return field is not None and field.format in _SECRET_FORMATS


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return visible(value, spaces=True)
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
        if len(text) > _MAX_ONE_LINE_CHARACTERS:
            text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
        return visible(text, spaces=True)
    except (ValueError, RecursionError):
        return "(too deeply nested to display)"
