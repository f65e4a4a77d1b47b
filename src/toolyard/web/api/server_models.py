"""Request and response models of registry servers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolyard.registry.form_input import ChoiceDraft, ServerDraft
from toolyard.registry.issuer_confirmation import ClientIssuer
from toolyard.types.registry import AuthChoice, RegistryServer
from toolyard.types.server import UrlTransportName
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.dependencies import HTTP_URL_PATTERN, PLAIN_TEXT_PATTERN, RequestModel, to_datetime
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


class ChoiceGiven(RequestModel):
    """A sign-in choice of a server."""

    id: str | None = Field(default=None, description="Id of the choice to replace; null to add a choice.")
    kind: Literal["public", "header", "oauth"] = "public"
    label: str = Field(default="", max_length=80)
    place: Literal["header", "query"] = "header"
    key: str | None = Field(
        default=None, max_length=128, description="Name of the header or query parameter."
    )
    registration: Literal["auto", "document", "dynamic", "entered"] = "auto"
    client_id: str | None = Field(default=None, max_length=8192)
    client_secret: str | None = Field(
        default=None,
        max_length=8192,
        description="Client secret; null keeps the stored one, an empty string removes it.",
    )
    scopes: list[str] = Field(default_factory=list[str], max_length=100)
    resource: str | None = Field(default=None, max_length=2048)
    legacy_discovery: bool = False
    issuer: str | None = Field(
        default=None,
        max_length=2048,
        description="Issuer of the authorization server where the client id is registered. The client secret"
        " is sent to no other.",
    )
    issuer_redirect: bool = Field(
        default=False,
        description="Whether the client id is registered with the redirect URI specific to this issuer,"
        " `/ui/auth/mcp/callback/{digest}`, instead of `/ui/auth/mcp/callback`.",
    )

    def draft(self) -> ChoiceDraft:
        """Return the input of the registry."""
        fields: dict[str, Any] = {**self.model_dump(), "scopes": tuple(self.scopes)}
        return ChoiceDraft(**fields)


class ServerGiven(RequestModel):
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
    transport: UrlTransportName = "http"
    trust: Literal["trusted", "untrusted"] = "trusted"
    description: str = Field(default="", max_length=2000)
    private_addresses: bool = Field(
        default=False,
        description="Whether the server and its authorization server may have private network addresses.",
    )
    allow_tools: AllowPatterns | None = None
    deny_tools: DenyPatterns = Field(default_factory=list[str])
    choices: list[ChoiceGiven] = Field(
        default_factory=list[ChoiceGiven],
        max_length=10,
        description="Sign-in choices; empty if no sign-in is needed.",
    )
    enabled: bool = True

    def draft(self) -> ServerDraft:
        """Return the input of the registry."""
        return _create_server_draft({name: getattr(self, name) for name in type(self).model_fields})


class ServerChanges(RequestModel):
    """Changes to a server; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"description": "Our own repositories"}]})

    name: ServerName | None = None
    url: ServerUrl | None = None
    transport: UrlTransportName | None = None
    trust: Literal["trusted", "untrusted"] | None = None
    description: str | None = Field(default=None, max_length=2000)
    private_addresses: bool | None = None
    allow_tools: AllowPatterns | None = Field(
        default=None, description="Patterns of allowed tools; null for all tools."
    )
    deny_tools: DenyPatterns | None = None
    choices: list[ChoiceGiven] | None = Field(
        default=None, max_length=10, description="Complete list: omitted choices are deleted."
    )
    enabled: bool | None = None

    def draft(self, old: RegistryServer) -> ServerDraft:
        """Return the input of the registry: the old server with the changes applied."""
        fields: dict[str, Any] = {
            name: getattr(old, name)
            for name in ("name", "url", "transport", "description", "private_addresses", "allow_tools")
        }
        fields |= {"trust": old.trust.value, "deny_tools": old.deny_tools, "enabled": old.enabled}
        fields["choices"] = [_copy_choice(choice) for choice in old.choices]
        changes = {name: getattr(self, name) for name in self.model_fields_set}
        # Only the list of allowed tools can be removed by null; for other fields null means no change.
        fields |= {
            name: value for name, value in changes.items() if value is not None or name == "allow_tools"
        }
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


class IssuerGiven(RequestModel):
    """Confirmation of the issuer of a sign-in choice."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"choice_id": "5f0c1d2e3a4b5c6d", "issuer": "https://login.example.com"}]
        }
    )

    choice_id: str = Field(min_length=1, max_length=128, description="Sign-in choice with the client secret.")
    issuer: str = Field(
        min_length=1,
        max_length=2048,
        examples=["https://login.example.com"],
        description="Issuer that the server reports. It is compared with the issuer reported now.",
    )


class IssuerShown(BaseModel):
    """Unconfirmed issuer that a server reports for a client secret."""

    choice_id: str
    issuer: str | None = Field(description="Issuer; null if it was not found, see `error`.")
    error: str | None = Field(description="Reason why it was not found.")


class IssuerList(BaseModel):
    """Issuers to confirm, one for each sign-in choice."""

    items: list[IssuerShown]


class ChoiceShown(BaseModel):
    """A sign-in choice of a server."""

    id: str
    kind: Literal["public", "header", "oauth"]
    label: str
    place: Literal["header", "query"]
    key: str | None
    registration: Literal["auto", "document", "dynamic", "entered"]
    client_id: str | None = Field(description="OAuth client id. Shown to admins only.")
    has_client_secret: bool
    scopes: list[str]
    resource: str | None
    legacy_discovery: bool
    issuer: str | None = Field(
        description="Issuer of the authorization server where the client id is registered."
    )
    issuer_redirect: bool = Field(
        description="Whether the client id is registered with the redirect URI specific to its issuer."
    )


class ServerShown(BaseModel):
    """A registry server."""

    id: str
    name: str
    url: str
    transport: UrlTransportName
    trust: Literal["trusted", "untrusted"]
    enabled: bool
    description: str
    private_addresses: bool
    allow_tools: list[str] | None
    deny_tools: list[str]
    choices: list[ChoiceShown]
    instance_count: int | None = Field(description="Number of instances of all users. Shown to admins only.")
    created_at: datetime
    updated_at: datetime
    preview: PreviewShown | None = Field(
        default=None, description="Contents of the server, if requested with `preview=true`."
    )


class ServerList(BaseModel):
    """All registry servers, sorted by name."""

    items: list[ServerShown]


def build_server_model(server: RegistryServer, request_user: RequestUser, count: int | None) -> ServerShown:
    """Return the response model of a server, with the fields that the user may see and without secrets."""
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
        choices=[_build_choice_model(choice, request_user) for choice in server.choices],
        instance_count=count if request_user.is_admin else None,
        created_at=to_datetime(server.created_at),
        updated_at=to_datetime(server.updated_at),
    )


def issuer_list(issuers: Sequence[ClientIssuer]) -> IssuerList:
    """Return the response model of unconfirmed issuers."""
    return IssuerList(
        items=[
            IssuerShown(
                choice_id=each.choice.id,
                issuer=each.issuer or None,
                error=None if each.error is None else each.error.cause,
            )
            for each in issuers
            if each.choice is not None
        ]
    )


def _build_choice_model(choice: AuthChoice, request_user: RequestUser) -> ChoiceShown:
    return ChoiceShown(
        id=choice.id,
        kind=choice.kind.value,
        label=choice.label,
        place=choice.place,
        key=choice.key,
        registration=choice.registration.value,
        client_id=choice.client_id if request_user.is_admin else None,
        has_client_secret=choice.client_secret is not None,
        scopes=list(choice.scopes),
        resource=choice.resource,
        legacy_discovery=choice.legacy_discovery,
        issuer=choice.issuer,
        issuer_redirect=choice.issuer_redirect,
    )
