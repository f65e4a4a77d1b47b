"""``/tokens``: the API tokens of whoever asks. Their texts are shown once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from toolyard.accounts.api_tokens import expires_soon
from toolyard.registry.errors import NotFound
from toolyard.types.account import ApiToken, Right, TokenScope
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AppServices,
    BrowserUser,
    Given,
    PathId,
    UserWithRead,
    problem_responses,
    require_media_types,
    to_datetime,
    to_optional_datetime,
)

__all__ = ["ScopeShown", "build_scope_model", "router"]

router = APIRouter(
    prefix="/tokens", tags=["tokens"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)

RightName = Literal["read", "call", "approve", "manage", "admin"]
ScopeEntries = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=200)]


class ScopeGiven(Given):
    """What a token is limited to. null: whatever its owner may use."""

    rights: list[RightName] = Field(min_length=1, max_length=len(Right))
    servers: ScopeEntries | None = Field(
        default=None, description="Ids of servers and slugs of instances; globs."
    )
    tools: ScopeEntries | None = Field(
        default=None, description="Patterns over the names of tools; ! denies."
    )
    agents: ScopeEntries | None = Field(default=None, description="Ids of agents; globs.")


class TokenGiven(Given):
    """A token to make."""

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
    scope: ScopeGiven
    expires_in: float | None = Field(
        default=None,
        gt=0,
        le=316_224_000,
        description="Seconds; null: it never expires; left out: the setting `token_lifetime` decides.",
    )


class ScopeShown(BaseModel):
    """What a token is limited to. null: whatever its owner may use."""

    rights: list[RightName]
    servers: list[str] | None
    tools: list[str] | None
    agents: list[str] | None


class TokenShown(BaseModel):
    """A token as it is listed."""

    id: str
    name: str
    scope: ScopeShown
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    expires_soon: bool = Field(description="Whether it stops working within two weeks.")


class TokenMade(TokenShown):
    """A token that was just made."""

    token: str = Field(description="Its text. It is shown this once.", examples=["ty_…"])


class TokenList(BaseModel):
    """Your tokens."""

    items: list[TokenShown]


def build_scope_model(scope: TokenScope) -> ScopeShown:
    """A scope as the API shows it."""
    return ScopeShown(
        rights=[each.value for each in Right if each in scope.rights],
        servers=None if scope.servers is None else list(scope.servers),
        tools=None if scope.tools is None else list(scope.tools),
        agents=None if scope.agents is None else list(scope.agents),
    )


def _build_token_model(token: ApiToken, now: float) -> TokenShown:
    return TokenShown(
        id=token.id,
        name=token.name,
        scope=build_scope_model(token.scope),
        created_at=to_datetime(token.created_at),
        expires_at=to_optional_datetime(token.expires_at),
        last_used_at=to_optional_datetime(token.last_used_at),
        expires_soon=expires_soon(token, now),
    )


@router.get("", responses=problem_responses(), summary="Your tokens")
async def list_tokens(site: AppServices, visitor: UserWithRead) -> TokenList:
    """All of them. Their texts are stored as hashes only."""
    return TokenList(
        items=[
            _build_token_model(each, site.clock())
            for each in await site.database.accounts.tokens(visitor.user.id)
        ]
    )


@router.post("", status_code=201, responses=problem_responses(413, 415), summary="Make a token")
async def make_token(site: AppServices, visitor: BrowserUser, given: TokenGiven) -> TokenMade:
    """Make a token. Its text is in this answer, and never again anywhere. No token can make another one."""
    scope = TokenScope(
        rights=frozenset(Right(each) for each in given.scope.rights),
        servers=None if given.scope.servers is None else tuple(given.scope.servers),
        tools=None if given.scope.tools is None else tuple(given.scope.tools),
        agents=None if given.scope.agents is None else tuple(given.scope.agents),
    )
    chosen = "expires_in" in given.model_fields_set
    lifetime = given.expires_in if chosen else site.people.token_lifetime
    token, text = await site.people.make_token(visitor.user, given.name, scope, lifetime)
    await site.changed(visitor, "token.make", token.id, name=token.name)
    return TokenMade(**_build_token_model(token, site.clock()).model_dump(), token=text)


@router.delete("/{id}", status_code=204, responses=problem_responses(404), summary="Delete a token")
async def delete_token(site: AppServices, visitor: BrowserUser, id: PathId) -> None:
    """It opens nothing any more."""
    if not await site.database.accounts.delete_token(visitor.user.id, id):
        raise NotFound("there is no such token", hint="it may have been deleted")
    await site.changed(visitor, "token.delete", id)
