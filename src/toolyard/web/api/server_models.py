"""Servers of the registry as the API takes and shows them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolyard.registry.form_input import ChoiceDraft, ServerDraft
from toolyard.registry.issuer_confirmation import ClientIssuer
from toolyard.types.registry import AuthChoice, RegistryServer
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.dependencies import HTTP_URL_PATTERN, PLAIN_TEXT_PATTERN, Given, to_datetime
from toolyard.web.api.previews import PreviewShown

__all__ = [
    "IssuerGiven",
    "IssuerList",
    "ServerChanges",
    "ServerGiven",
    "ServerList",
    "ServerShown",
    "build_server_model",
    "issuer_list",
]

ServerName = Annotated[
    str,
    Field(
        min_length=1, max_length=80, examples=["GitHub"], json_schema_extra={"pattern": PLAIN_TEXT_PATTERN}
    ),
]
ServerUrl = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2048,
        examples=["https://mcp.example.com/mcp"],
        json_schema_extra={"pattern": HTTP_URL_PATTERN},
    ),
]
ToolPattern = Annotated[
    str,
    Field(
        min_length=1, max_length=256, json_schema_extra={"pattern": PLAIN_TEXT_PATTERN}, examples=["read*"]
    ),
]
AllowPatterns = Annotated[list[ToolPattern], Field(max_length=500, json_schema_extra={"minItems": 1})]
DenyPatterns = Annotated[list[ToolPattern], Field(max_length=500)]


class ChoiceGiven(Given):
    """One way of signing in."""

    id: str | None = Field(
        default=None, description="The choice that this one replaces; none makes a new one."
    )
    kind: Literal["public", "header", "oauth"] = "public"
    label: str = Field(default="", max_length=80)
    place: Literal["header", "query"] = "header"
    key: str | None = Field(default=None, max_length=128, description="The header's or parameter's name.")
    registration: Literal["auto", "document", "dynamic", "entered"] = "auto"
    client_id: str | None = Field(default=None, max_length=8192)
    client_secret: str | None = Field(
        default=None,
        max_length=8192,
        description="None keeps the one that is there, an empty text removes it.",
    )
    scopes: list[str] = Field(default_factory=list[str], max_length=100)
    resource: str | None = Field(default=None, max_length=2048)
    legacy_discovery: bool = False
    issuer: str | None = Field(
        default=None,
        max_length=2048,
        description="The authorization server at which the client id was registered. A client secret is sent"
        " to no other.",
    )
    issuer_redirect: bool = Field(
        default=False,
        description="Whether the client id is registered there with the redirect address of that issuer"
        " alone, `/ui/auth/mcp/callback/{digest}`; otherwise `/ui/auth/mcp/callback` is used.",
    )

    def draft(self) -> ChoiceDraft:
        """As the registry takes it."""
        fields: dict[str, Any] = {**self.model_dump(), "scopes": tuple(self.scopes)}
        return ChoiceDraft(**fields)


class ServerGiven(Given):
    """A server to add."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "GitHub",
                    "url": "https://api.githubcopilot.com/mcp/",
                    "choices": [{"kind": "oauth", "registration": "dynamic"}],
                }
            ]
        }
    )

    name: ServerName
    url: ServerUrl
    transport: Literal["http", "sse"] = "http"
    trust: Literal["trusted", "untrusted"] = "trusted"
    description: str = Field(default="", max_length=2000)
    private_addresses: bool = Field(
        default=False, description="Whether it, and what it names, may be on private addresses."
    )
    allow_tools: AllowPatterns | None = None
    deny_tools: DenyPatterns = Field(default_factory=list[str])
    choices: list[ChoiceGiven] = Field(
        default_factory=list[ChoiceGiven],
        max_length=10,
        description="None at all: it does not ask who calls.",
    )
    enabled: bool = True

    def draft(self) -> ServerDraft:
        """As the registry takes it."""
        return _create_server_draft({name: getattr(self, name) for name in type(self).model_fields})


class ServerChanges(Given):
    """What to change about a server; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"description": "Our own repositories"}]})

    name: ServerName | None = None
    url: ServerUrl | None = None
    transport: Literal["http", "sse"] | None = None
    trust: Literal["trusted", "untrusted"] | None = None
    description: str | None = Field(default=None, max_length=2000)
    private_addresses: bool | None = None
    allow_tools: AllowPatterns | None = Field(default=None, description="null: every tool.")
    deny_tools: DenyPatterns | None = None
    choices: list[ChoiceGiven] | None = Field(
        default=None, max_length=10, description="All of them: those that are left out are deleted."
    )
    enabled: bool | None = None

    def draft(self, old: RegistryServer) -> ServerDraft:
        """The server as it shall be."""
        fields: dict[str, Any] = {
            name: getattr(old, name)
            for name in ("name", "url", "transport", "description", "private_addresses", "allow_tools")
        }
        fields |= {"trust": old.trust.value, "deny_tools": old.deny_tools, "enabled": old.enabled}
        fields["choices"] = [_copy_choice(choice) for choice in old.choices]
        given = {name: getattr(self, name) for name in self.model_fields_set}
        # Only a list of allowed tools can be taken away; null says nothing about the rest.
        fields |= {name: value for name, value in given.items() if value is not None or name == "allow_tools"}
        return _create_server_draft(fields)


def _create_server_draft(fields: dict[str, Any]) -> ServerDraft:
    allow = fields["allow_tools"]
    tuples: dict[str, Any] = {
        "allow_tools": None if allow is None else tuple(allow),
        "deny_tools": tuple(fields["deny_tools"]),
        "choices": tuple(each.draft() for each in fields["choices"]),
    }
    return ServerDraft(**{**fields, **tuples})


def _copy_choice(choice: AuthChoice) -> ChoiceGiven:
    return ChoiceGiven(
        id=choice.id,
        kind=choice.kind.value,
        label=choice.label,
        place=choice.place,
        key=choice.key,
        registration=choice.registration.value,
        client_id=choice.client_id,
        scopes=list(choice.scopes),
        resource=choice.resource,
        legacy_discovery=choice.legacy_discovery,
        issuer=choice.issuer,
        issuer_redirect=choice.issuer_redirect,
    )


class IssuerGiven(Given):
    """The issuer of a sign-in choice, as an admin confirms it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"choice_id": "5f0c1d2e3a4b5c6d", "issuer": "https://login.example.com"}]
        }
    )

    choice_id: str = Field(min_length=1, max_length=128, description="The choice with the client secret.")
    issuer: str = Field(
        min_length=1,
        max_length=2048,
        examples=["https://login.example.com"],
        description="The issuer that the server names. It is compared with what the server names now.",
    )


class IssuerShown(BaseModel):
    """The issuer that a server names for a client secret, which no admin has confirmed yet."""

    choice_id: str
    issuer: str | None = Field(description="null: it was not found, see `error`.")
    error: str | None = Field(description="Why it was not found.")


class IssuerList(BaseModel):
    """The issuers to confirm, one for each choice."""

    items: list[IssuerShown]


class ChoiceShown(BaseModel):
    """One way of signing in."""

    id: str
    kind: Literal["public", "header", "oauth"]
    label: str
    place: Literal["header", "query"]
    key: str | None
    registration: Literal["auto", "document", "dynamic", "entered"]
    client_id: str | None = Field(description="For admins.")
    has_client_secret: bool
    scopes: list[str]
    resource: str | None
    legacy_discovery: bool
    issuer: str | None = Field(description="The authorization server of the client id.")
    issuer_redirect: bool = Field(
        description="Whether the client id is registered with the redirect address of its issuer alone."
    )


class ServerShown(BaseModel):
    """A server of the registry."""

    id: str
    name: str
    url: str
    transport: Literal["http", "sse"]
    trust: Literal["trusted", "untrusted"]
    enabled: bool
    description: str
    private_addresses: bool
    allow_tools: list[str] | None
    deny_tools: list[str]
    choices: list[ChoiceShown]
    instance_count: int | None = Field(description="How many instances people have of it; for admins.")
    created_at: datetime
    updated_at: datetime
    preview: PreviewShown | None = Field(
        default=None, description="What it has; only where it was asked for with preview=true."
    )


class ServerList(BaseModel):
    """All servers of the registry, by name."""

    items: list[ServerShown]


def build_server_model(server: RegistryServer, visitor: RequestUser, count: int | None) -> ServerShown:
    """A server as this visitor may see it. Secrets are never shown."""
    return ServerShown(
        id=server.id,
        name=server.name,
        url=server.url,
        transport=server.transport,
        trust=server.trust.value,
        enabled=server.enabled,
        description=server.description,
        private_addresses=server.private_addresses,
        allow_tools=None if server.allow_tools is None else list(server.allow_tools),
        deny_tools=list(server.deny_tools),
        choices=[_build_choice_model(choice, visitor) for choice in server.choices],
        instance_count=count if visitor.is_admin else None,
        created_at=to_datetime(server.created_at),
        updated_at=to_datetime(server.updated_at),
    )


def issuer_list(found: Sequence[ClientIssuer]) -> IssuerList:
    """Return the issuers of registry choices as the API shows them."""
    return IssuerList(
        items=[
            IssuerShown(
                choice_id=each.choice.id,
                issuer=each.issuer or None,
                error=None if each.error is None else each.error.cause,
            )
            for each in found
            if each.choice is not None
        ]
    )


def _build_choice_model(choice: AuthChoice, visitor: RequestUser) -> ChoiceShown:
    return ChoiceShown(
        id=choice.id,
        kind=choice.kind.value,
        label=choice.label,
        place=choice.place,
        key=choice.key,
        registration=choice.registration.value,
        client_id=choice.client_id if visitor.is_admin else None,
        has_client_secret=choice.client_secret is not None,
        scopes=list(choice.scopes),
        resource=choice.resource,
        legacy_discovery=choice.legacy_discovery,
        issuer=choice.issuer,
        issuer_redirect=choice.issuer_redirect,
    )
