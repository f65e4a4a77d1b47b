"""Registry servers, entered by admins, and the instances that users connect to them.

Each record is declared once. Its draft declares the fields that people set (admins those of servers and
sign-in choices, users those of their instances); the record adds the others and narrows types. ``spec`` says
the rest about a field. Columns, checks, API models and forms are made from ``record_fields``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass, field, replace
from enum import Enum, StrEnum, auto
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from toolyard.types.server import Trust, UrlTransportName

__all__ = [
    "PLAIN_TEXT_PATTERN",
    "Audience",
    "AuthChoice",
    "AuthKind",
    "ChoiceDraft",
    "FieldSpec",
    "Instance",
    "InstanceDraft",
    "InstanceName",
    "InstanceState",
    "RecordField",
    "RegistrationMethod",
    "RegistryServer",
    "ServerDraft",
    "TextRule",
    "get_record_field",
    "grant_key",
    "parse_grant_key",
    "record_fields",
    "spec",
]


_GRANT_KEY_PREFIX = "instance:"


# Facts about fields.


class Audience(Enum):
    """People to whom the API shows a field."""

    NOBODY = auto()
    ADMINS = auto()
    """Others receive null."""
    USERS = auto()


_CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
PLAIN_TEXT_PATTERN = rf"^[^{_CONTROL_CHARACTERS}]*[^{_CONTROL_CHARACTERS}\s][^{_CONTROL_CHARACTERS}]*$"
"""Text that is not blank and has no control or bidirectional characters, which could falsify a display."""


class TextRule(Enum):
    """Rule for a text. ``registry.field_validation`` checks it.

    The API publishes its maximum length, and for texts that must not be empty also its pattern.
    """

    CREDENTIAL = "credential", 8192
    DESCRIPTION = "description", 2000
    ID = "id", 128
    ISSUER = "issuer", 2048
    KEY = "key", 128
    """Name of a header or query parameter."""
    MODEL_NAME = "model name", 64
    NAME = "name", 80, PLAIN_TEXT_PATTERN
    PROVIDER_MODEL = "provider's model", 256
    RESOURCE = "resource", 2048
    SCOPE = "scope", 256
    SLUG = "slug", 24, "^[A-Za-z0-9-]{1,24}$"
    TOOL_NAME = "tool name", 256
    TOOL_PATTERN = "tool pattern", 256, PLAIN_TEXT_PATTERN
    USER_ID = "user id", 128
    URL = "url", 2048, r"^[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f\\]+$"
    VALUE = "value", 8192
    VARIABLE = "variable", 128

    def __init__(self, label: str, max_characters: int, pattern: str = "") -> None:
        self.label = label
        self.max_characters = max_characters
        self.pattern = pattern


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """Facts about a field that its type and default do not tell. By default, the API does not show it."""

    shown_to: Audience = Audience.NOBODY
    stored: bool = True
    """Whether the table of the record has a column for it."""
    secret: bool = False
    """Whether its column is encrypted. The API shows at most whether there is a value, as ``has_…``."""
    rule: TextRule | None = None
    """Rule for the text, or for each text of a list."""
    not_empty: bool = False
    """Whether the API refuses an empty text, or empty texts in a list."""
    max_entries: int | None = None
    min_entries: int | None = None
    kind: AuthKind | None = None
    """Kind of sign-in choices to which the field applies; other kinds have its default."""
    description: str | None = None
    """Description in the API's schema."""
    example: str | None = None
    label: str = ""
    """Label in the form; empty if the form does not have the field."""
    help: str = ""
    """Explanation below the field in the form."""
    error_hint: str | None = None
    """Hint for an invalid value."""


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record, with the facts about it."""

    name: str
    type: Any
    """Type in the record, without None."""
    optional: bool
    """Whether the record's value may be None."""
    default: Any
    """Default of the record, else of the draft; MISSING if there is none."""
    settable: bool
    """Whether it is in the draft."""
    spec: FieldSpec

    @property
    def item_type(self) -> Any:
        """Type of the entries, if the type is a tuple; else None."""
        return get_args(self.type)[0] if get_origin(self.type) is tuple else None

    @property
    def allowed_values(self) -> tuple[str, ...]:
        """Values of an enumeration or literal; empty for other types."""
        if self.is_enum:
            return tuple(member.value for member in self.type)
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_enum(self) -> bool:
        """Whether the type is an enumeration."""
        return get_origin(self.type) is None and issubclass(self.type, StrEnum)


@cache
def record_fields(record: type[Any]) -> tuple[RecordField, ...]:
    """Return the fields of a record, such as ``RegistryServer`` or ``Instance``."""
    draft: Any = record.__base__
    drafts = (draft,) if dataclasses.is_dataclass(draft) else ()
    draft_defaults = {each.name: each.default for cls in drafts for each in dataclasses.fields(cls)}
    # A field that the record narrows has its spec in the draft.
    specs = {
        each.name: each.metadata["spec"]
        for cls in (*drafts, record)
        for each in dataclasses.fields(cls)
        if "spec" in each.metadata
    }
    types = get_type_hints(record)
    found: list[RecordField] = []
    for each in dataclasses.fields(record):
        args = get_args(types[each.name])
        optional = NoneType in args
        found.append(
            RecordField(
                each.name,
                next(arg for arg in args if arg is not NoneType) if optional else types[each.name],
                optional,
                draft_defaults.get(each.name, MISSING) if each.default is MISSING else each.default,
                each.name in draft_defaults,
                specs.get(each.name, FieldSpec()),
            )
        )
    return tuple(found)


def get_record_field(record: type[Any], name: str) -> RecordField:
    """Return a field of a record by its name."""
    return next(each for each in record_fields(record) if each.name == name)


def spec(**facts: Any) -> dict[str, FieldSpec]:
    """Return the metadata of a dataclass field with these facts (see ``FieldSpec``)."""
    return {"spec": FieldSpec(**facts)}


# Servers and their sign-in choices.


class AuthKind(StrEnum):
    """Way in which a server authenticates users."""

    PUBLIC = "public"
    """No authentication."""
    HEADER = "header"
    """API key: each user enters a value, sent in a header or query parameter chosen by the admin."""
    OAUTH = "oauth"
    """Each user signs in with OAuth 2.1."""


class RegistrationMethod(StrEnum):
    """Way to obtain a client id at a server's authorization server."""

    AUTO = "auto"
    """Client id metadata document or dynamic registration, whichever deployment and server support."""
    DOCUMENT = "document"
    """Client id metadata document only."""
    DYNAMIC = "dynamic"
    """Dynamic client registration only."""
    ENTERED = "entered"
    """The admin registered a client there and entered its client id."""


@dataclass(frozen=True, slots=True)
class ChoiceDraft:
    """Unvalidated input for a sign-in choice. Fields that do not apply to its kind are ignored."""

    kind: str = field(default="public", metadata=spec(shown_to=Audience.USERS, label="Kind"))
    label: str = field(
        default="",
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.NAME,
            label="Label",
            help="Shown when people choose a method. Leave empty to generate one.",
        ),
    )
    id: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            label="Choice",
            description="Id of the choice to replace; null to add a choice.",
        ),
    )
    """Existing choice that this one replaces; None creates a new one."""
    place: str = field(
        default="header", metadata=spec(shown_to=Audience.USERS, kind=AuthKind.HEADER, label="Sent in")
    )
    key: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.KEY,
            kind=AuthKind.HEADER,
            description="Name of the header or query parameter.",
            label="Header or parameter name",
            help="For example X-Api-Key or Authorization.",
        ),
    )
    registration: str = field(
        default="auto", metadata=spec(shown_to=Audience.USERS, kind=AuthKind.OAUTH, label="Registration")
    )
    client_id: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.ADMINS,
            rule=TextRule.CREDENTIAL,
            kind=AuthKind.OAUTH,
            description="OAuth client id. Shown to admins only.",
            label="Client id",
        ),
    )
    client_secret: str | None = field(
        default=None,
        repr=False,
        metadata=spec(
            shown_to=Audience.USERS,
            secret=True,
            rule=TextRule.CREDENTIAL,
            kind=AuthKind.OAUTH,
            description="Client secret; null keeps the stored one, an empty string removes it.",
            label="Client secret",
            help="Stored encrypted, never shown.",
        ),
    )
    """None keeps the stored secret, an empty one removes it."""
    scopes: tuple[str, ...] = field(
        default=(),
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.SCOPE,
            max_entries=100,
            kind=AuthKind.OAUTH,
            label="Scopes",
            help="Separate with spaces. Leave empty to use what the server requests.",
        ),
    )
    resource: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.RESOURCE,
            kind=AuthKind.OAUTH,
            label="Resource",
            help="The resource indicator, if it differs from the server’s URL.",
        ),
    )
    legacy_discovery: bool = field(
        default=False,
        metadata=spec(
            shown_to=Audience.USERS,
            kind=AuthKind.OAUTH,
            label="Allow legacy discovery (MCP 2025-03-26)",
            help="For servers without protected-resource metadata.",
        ),
    )
    issuer: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.ISSUER,
            kind=AuthKind.OAUTH,
            description="Issuer of the authorization server where the client id is registered. The client"
            " secret is sent to no other.",
            label="Issuer",
            help="The authorization server where you registered the client, such as"
            " https://login.example.com.",
            error_hint="write it like https://login.example.com",
        ),
    )
    """Authorization server at which the admin registered the entered client."""
    issuer_redirect: bool = field(
        default=False,
        metadata=spec(
            shown_to=Audience.USERS,
            kind=AuthKind.OAUTH,
            description="Whether the client id is registered with the redirect URI specific to this issuer,"
            " `/ui/auth/mcp/callback/{digest}`, instead of `/ui/auth/mcp/callback`.",
            label="I registered this issuer's redirect URI",
            help="Otherwise the address shared by all issuers is used, which cannot tell their responses"
            " apart.",
        ),
    )
    """Whether the entered client is registered with the issuer-specific redirect URI only."""


@dataclass(frozen=True, slots=True)
class AuthChoice(ChoiceDraft):
    """One authentication method of a server; a server may have several. ``id`` never changes."""

    kind: AuthKind = AuthKind.PUBLIC
    id: str = field(kw_only=True)
    place: Literal["header", "query"] = "header"
    registration: RegistrationMethod = RegistrationMethod.AUTO


@dataclass(frozen=True, slots=True)
class ServerDraft:
    """Unvalidated input for a registry server. Without any choices, the server is public."""

    name: str = field(
        metadata=spec(
            shown_to=Audience.USERS, rule=TextRule.NAME, not_empty=True, example="GitHub", label="Name"
        )
    )
    url: str = field(
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.URL,
            not_empty=True,
            example="https://mcp.example.com/mcp",
            label="URL",
            help="The MCP endpoint, such as https://mcp.example.com/mcp.",
            error_hint="write it like https://mcp.example.com/mcp",
        )
    )
    transport: str = field(
        default="http",
        metadata=spec(
            shown_to=Audience.USERS,
            label="Transport",
            error_hint="stdio servers are configured in the operator's files",
        ),
    )
    trust: str = field(default="trusted", metadata=spec(shown_to=Audience.USERS, label="Trust"))
    description: str = field(
        default="",
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.DESCRIPTION,
            label="Description",
            help="What the server is for. Shown when people choose a server.",
        ),
    )
    private_addresses: bool = field(
        default=False,
        metadata=spec(
            shown_to=Audience.USERS,
            description="Whether the server and its authorization server may have private network addresses.",
            label="Allow private network addresses",
            help="The server, and any address it refers to, may then be in your own network. Use this only"
            " for servers you run.",
        ),
    )
    """Whether this server, and the URLs in its metadata, may be on private network addresses."""
    allow_tools: tuple[str, ...] | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.TOOL_PATTERN,
            not_empty=True,
            min_entries=1,
            max_entries=500,
            description="Patterns of allowed tools; null for all tools.",
            example="read*",
            label="Allowed tools",
            help="One name or pattern per line. Leave empty for all tools. Required for untrusted servers.",
        ),
    )
    deny_tools: tuple[str, ...] = field(
        default=(),
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.TOOL_PATTERN,
            not_empty=True,
            max_entries=500,
            example="read*",
            label="Denied tools",
            help="One name or pattern per line. Denied tools override allowed tools.",
        ),
    )
    choices: tuple[ChoiceDraft, ...] = field(
        default=(),
        metadata=spec(
            shown_to=Audience.USERS,
            stored=False,
            max_entries=10,
            description="Complete list of sign-in choices; empty if no sign-in is needed.",
            label="Sign-in methods",
        ),
    )
    enabled: bool | None = field(default=None, metadata=spec(shown_to=Audience.USERS))
    """None keeps the current value; a new one is enabled."""


@dataclass(frozen=True, slots=True)
class RegistryServer(ServerDraft):
    """A server of the registry, http or sse only.

    ``id`` never changes; ``name`` is unique regardless of case.
    """

    id: str = field(kw_only=True, metadata=spec(shown_to=Audience.USERS))
    transport: UrlTransportName = "http"
    trust: Trust = Trust.TRUSTED
    enabled: bool = True
    choices: tuple[AuthChoice, ...] = ()
    created_at: float = field(default=0.0, metadata=spec(shown_to=Audience.USERS))
    updated_at: float = field(default=0.0, metadata=spec(shown_to=Audience.USERS))

    def find_choice(self, choice_id: str) -> AuthChoice | None:
        """Return the authentication method with this id, or None."""
        return next((choice for choice in self.choices if choice.id == choice_id), None)

    def to_draft(self) -> ServerDraft:
        """Return the input that changes nothing. It has no secrets, so that the stored ones are kept."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(ServerDraft)}
        values["choices"] = tuple(replace(choice, client_secret=None) for choice in self.choices)
        return ServerDraft(**values)


# Instances.


class InstanceState(StrEnum):
    """Last known state of an instance, stored in the database for all replicas."""

    PENDING = "pending"
    """Created; its user has not signed in or entered the key yet. Remains until the user deletes it."""
    READY = "ready"
    """Usable as of the last attempt."""
    NEEDS_REAUTH = "needs_reauth"
    """The sign-in ended; the user must reconnect."""
    FAILED = "failed"
    """The last attempt to connect failed; ``reason`` is the cause. The next use tries again."""


@dataclass(frozen=True, slots=True)
class InstanceDraft:
    """Unvalidated input for a user's instance."""

    server_id: str = field(
        default="", metadata=spec(shown_to=Audience.USERS, rule=TextRule.ID, not_empty=True)
    )
    """Used for a new instance; it cannot be changed later."""
    choice_id: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.ID,
            description="Sign-in choice; null for the only choice of the server.",
            label="Sign-in method",
        ),
    )
    """None keeps the current choice; for a new instance, it means the server's only choice."""
    slug: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.SLUG,
            not_empty=True,
            description="Prefix of tool names; null to derive it from the URL of the server.",
            example="github",
            label="Slug",
            help="Use 1–24 letters, digits or hyphens. It becomes part of the tool names.",
        ),
    )
    """None or empty keeps the current slug; for a new instance, one is derived from the server's URL."""
    name: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.NAME,
            not_empty=True,
            description="Display name; null for the name of the server.",
            example="GitHub, at work",
            label="Name",
            help="Shown in lists.",
        ),
    )
    """None or empty keeps the current name; for a new instance, it is the server's name."""
    tool_filter: tuple[str, ...] | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.TOOL_NAME,
            not_empty=True,
            max_entries=10_000,
            description="Names of the enabled tools, as the server defines them; null for all tools, an"
            " empty list for none.",
            label="Tools",
        ),
    )
    """Enabled tools, by the server's own names; None enables all, () none."""
    value: str | None = field(
        default=None,
        repr=False,
        metadata=spec(
            shown_to=Audience.USERS,
            secret=True,
            rule=TextRule.VALUE,
            description="Value of the header or parameter; never returned. An empty string removes it.",
            label="Value",
            help="Stored encrypted, sent only to this server, never shown again.",
        ),
    )
    """Key entered by the user, for the kind header. None keeps the stored value, an empty one removes it."""
    enabled: bool | None = field(default=None, metadata=spec(shown_to=Audience.USERS))
    """None keeps the current value; a new one is enabled."""


@dataclass(frozen=True, slots=True)
class Instance(InstanceDraft):
    """A user's connection to a registry server. ``slug`` is unique per user, regardless of case."""

    id: str = field(kw_only=True, metadata=spec(shown_to=Audience.USERS))
    user_id: str = field(kw_only=True)
    server_id: str = field()
    choice_id: str = field()
    slug: str = field()
    name: str = field()
    enabled: bool = True
    state: InstanceState = InstanceState.PENDING
    reason: str | None = None
    """Explanation of the state for the user, one sentence."""
    created_at: float = field(default=0.0, metadata=spec(shown_to=Audience.USERS))
    updated_at: float = field(default=0.0, metadata=spec(shown_to=Audience.USERS))

    @property
    def core_id(self) -> str:
        """Id of the instance's server, the first part of the canonical ids of its tools."""
        return _build_core_id(self.user_id, self.slug)

    @property
    def grant_key(self) -> str:
        """Key under which its OAuth tokens are stored."""
        return grant_key(self.id)


def grant_key(instance_id: str) -> str:
    """Return the key under which the OAuth tokens of an instance are stored."""
    return f"{_GRANT_KEY_PREFIX}{instance_id}"


def parse_grant_key(key: str) -> str:
    """Return the id of the instance to which a key of stored OAuth tokens belongs."""
    return key.removeprefix(_GRANT_KEY_PREFIX)


@dataclass(frozen=True, slots=True)
class InstanceName:
    """Ids and name of an instance."""

    id: str
    user_id: str
    slug: str
    name: str

    @property
    def core_id(self) -> str:
        """Id of the instance's server, as in ``Instance``."""
        return _build_core_id(self.user_id, self.slug)


def _build_core_id(user_id: str, slug: str) -> str:
    return f"@{user_id}/{slug}"
