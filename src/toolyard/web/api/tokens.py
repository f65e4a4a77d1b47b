"""``/tokens``: the user's API tokens. The secret of a token is returned only once."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from toolyard.accounts.random_secrets import expires_soon
from toolyard.registry.errors import NotFound
from toolyard.types.account import ApiToken, Right, TokenScope
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api

__all__ = ["ScopeResponse", "TokenList", "build_scope_model", "router"]

router = api.ApiRoutes(prefix="/tokens", tags=["tokens"])

RightName = Literal["read", "call", "approve", "manage", "admin"]
ScopeEntries = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=200)]


class ScopeRequest(api.RequestModel, schema="ScopeGiven"):
    """Limits of a token. null means no limit beyond the rights of its owner."""

    rights: list[RightName] = Field(min_length=1, max_length=len(Right))
    servers: ScopeEntries | None = Field(default=None, description="Globs of server ids and instance slugs.")
    tools: ScopeEntries | None = Field(default=None, description="Patterns of tool names; `!` excludes.")
    agents: ScopeEntries | None = Field(default=None, description="Globs of agent ids.")


class CreateTokenRequest(api.RequestModel, schema="TokenGiven"):
    """A token to create."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "nightly report",
                    "scope": {"rights": ["read", "call"], "servers": ["github"], "tools": ["github_search*"]},
                    "expires_in": 2592000,
                }
            ]
        }
    )

    name: str = Field(min_length=1, max_length=100)
    scope: ScopeRequest
    expires_in: float | None = Field(
        default=None,
        gt=0,
        le=316_224_000,
        description="Lifetime in seconds; null for no expiry; by default the setting `token_lifetime`.",
    )


class ScopeResponse(api.ApiModel, schema="ScopeShown"):
    """Limits of a token. null means no limit beyond the rights of its owner."""

    rights: list[RightName]
    servers: list[str] | None
    tools: list[str] | None
    agents: list[str] | None


class TokenResponse(api.ApiModel, schema="TokenShown"):
    """A token without its secret."""

    id: str
    name: str
    scope: ScopeResponse
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    expires_soon: bool = Field(description="Whether it expires within two weeks.")


class CreatedTokenResponse(TokenResponse, schema="TokenMade"):
    """A new token with its secret."""

    token: str = Field(description="Secret of the token. It is returned only once.", examples=["ty_…"])


class TokenList(api.ItemList[TokenResponse]):
    """Your tokens."""


def build_scope_model(scope: TokenScope) -> ScopeResponse:
    """Return the response model of a scope, with the rights in their order."""
    return ScopeResponse.of(scope, rights=[each for each in Right if each in scope.rights])


def _describe_token(token: ApiToken) -> dict[str, Any]:
    return {"scope": build_scope_model(token.scope), "expires_soon": expires_soon(token, time.time())}


@router.get("", summary="List your tokens")
async def list_tokens(accounts: deps.AccountsDep, request_user: api.UserWithRead) -> TokenList:
    """Return your tokens. Their secrets are stored only as hashes."""
    tokens = await accounts.list_tokens(request_user.user.id)
    return TokenList(items=[TokenResponse.of(each, **_describe_token(each)) for each in tokens])


@router.post("", status_code=201, errors=[413, 415], summary="Create a token")
async def make_token(
    audit: deps.AuditDep, people: deps.PeopleDep, request_user: deps.BrowserUser, given: CreateTokenRequest
) -> CreatedTokenResponse:
    """Create a token. Its secret is in this response only. Tokens cannot create other tokens."""
    scope = TokenScope(
        rights=frozenset(Right(each) for each in given.scope.rights),
        servers=None if given.scope.servers is None else tuple(given.scope.servers),
        tools=None if given.scope.tools is None else tuple(given.scope.tools),
        agents=None if given.scope.agents is None else tuple(given.scope.agents),
    )
    is_lifetime_given = "expires_in" in given.model_fields_set
    lifetime = given.expires_in if is_lifetime_given else people.token_lifetime
    token, text = await people.create_token(request_user.user, given.name, scope, lifetime)
    await audit.record_change(request_user, "token.make", token.id, name=token.name)
    return CreatedTokenResponse.of(token, **_describe_token(token), token=text)


@router.delete("/{id}", status_code=204, errors=[404], summary="Delete a token")
async def delete_token(
    audit: deps.AuditDep, accounts: deps.AccountsDep, request_user: deps.BrowserUser, id: api.PathId
) -> None:
    """Delete a token, which becomes invalid at once."""
    if not await accounts.delete_token(request_user.user.id, id):
        raise NotFound("token not found", hint="it may have been deleted")
    await audit.record_change(request_user, "token.delete", id)
