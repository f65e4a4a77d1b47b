"""Signing in to a server: away to its provider and back, with a page for each way in which that fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.client_registration import client_document
from toolyard.auth.errors import (
    AnswerRejected,
    AuthError,
    AuthorizationDenied,
    AuthUnavailable,
    ClientForgotten,
    DiscoveryFailed,
    PkceMissing,
    RegistrationFailed,
    TokenRefused,
)
from toolyard.auth.sign_in_target import Ourselves
from toolyard.errors import ToolyardError
from toolyard.registry.errors import Invalid, NotFound
from toolyard.types.registry import Instance
from toolyard.types.server import Server
from toolyard.web.access.dependencies import Visitor, person
from toolyard.web.config_sign_ins import finish, is_config_sign_in
from toolyard.web.error_table import kind_of
from toolyard.web.problem_details import describe, respond
from toolyard.web.services import CALLBACK, DOCUMENT, Site
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.formatting import host_of
from toolyard.web.ui.components.render import render

__all__ = ["Leave", "router", "sign_in_problem"]

router = APIRouter(include_in_schema=False)

Me = Annotated[Visitor, Depends(person)]

_DOCUMENT_SECONDS = 3600
_RETIRED = "retired"
_TITLES: tuple[tuple[type[ToolyardError], str], ...] = (
    (NotFound, "This instance is gone"),
    (Invalid, "This cannot be signed in to"),
    (AnswerRejected, "This sign-in cannot be finished"),
    (AuthorizationDenied, "The provider said no"),
    (ClientForgotten, "The provider no longer knows Toolyard"),
    (TokenRefused, "The provider did not complete the sign-in"),
    (RegistrationFailed, "Toolyard is not registered there"),
    (PkceMissing, "The provider is not safe enough"),
    (DiscoveryFailed, "It is not known where to sign in"),
    (AuthUnavailable, "The provider cannot be reached"),
)
_SHOWN = (AuthError, AuthUnavailable, NotFound, Invalid)


@dataclass(frozen=True, slots=True)
class Leave:
    """Somebody is about to be sent to their provider."""

    name: str
    url: str
    host: str
    back: str


@dataclass(frozen=True, slots=True)
class SignInProblem:
    """What happened, and what to do. ``again`` is where the same is begun once more."""

    title: str
    what: str
    hint: str | None
    kept: str
    again: str | None = None


@router.post("/ui/mcp/{instance_id}/connect")
async def connect(request: Request, me: Me, instance_id: str) -> Response:
    """Begin. A page leads on, since browsers let no form of ours lead to another site by a redirect."""
    site: Site = request.app.state.site
    wants_json = "application/json" in request.headers.get("accept", "")
    try:
        instance, _ = await site.registry.instance(me.user.id, instance_id)
        ourselves = site.ourselves(site.base_url(request))
        url = await site.sign_ins.begin(me.user.id, instance_id, me.browser, ourselves)
    except _SHOWN as error:
        if wants_json:
            return respond(*describe(error))
        return await _problem(request, me, error)
    await site.changed(me, "instance.connect", instance_id, slug=instance.slug)
    if wants_json:
        return JSONResponse({"url": url}, headers={"Cache-Control": "no-store"})
    page = Leave(instance.name, url, host_of(url), f"/ui/mcp/{instance_id}")
    return render(request, "oauth/leave.html", page=page)


@router.get(CALLBACK)
@router.get(CALLBACK + "/{digest}")
async def come_back(request: Request, me: Me, digest: str = "") -> Response:
    """Finish, in the browser that began."""
    site: Site = request.app.state.site
    kind = "instance"
    address = site.base_url(request) + CALLBACK + (f"/{digest}" if digest else "")
    try:
        response = AuthorizationResponse.of(address, request.query_params.multi_items())
        pending = await site.sign_ins.take(response.params, me.user.id, me.browser)
        if is_config_sign_in(pending, me):
            kind = "server"
            server = await finish(site, me, pending, response)
            return go(f"/ui/servers/{quote(server.id, safe='')}", f"You are signed in to “{_name(server)}”.")
        instance = await site.sign_ins.complete(pending, response, me.user.id)
    except _SHOWN as error:
        why = type(error).__name__
        await site.changed(me, f"{kind}.sign_in_failed", getattr(error, "server", ""), why=why)
        return await _problem(request, me, error)
    await site.changed(me, "instance.sign_in", instance.id, slug=instance.slug)
    await site.enter(me)
    await site.parts.reconnect(instance.core_id, me.principal)
    site.watchers.changed(me.principal, (instance.core_id,))
    return go(f"/ui/mcp#i-{instance.id}", f"“{instance.name}” is connected.")


@router.get(DOCUMENT)
async def show_document(request: Request) -> Response:
    """The document of earlier versions, one for all issuers: their grants are refreshed with it, but nobody
    signs in with it, because its redirect address belongs to no sign-in."""
    site: Site = request.app.state.site
    ourselves = site.ourselves(site.base_url(request))
    if ourselves.document_url is None:
        raise HTTPException(404)
    return _document(ourselves, ourselves.document_url, f"{ourselves.redirect_uri}/{_RETIRED}")


@router.get(DOCUMENT.removesuffix(".json") + "/{digest}.json")
async def show_issuer_document(request: Request, digest: str) -> Response:
    """The document of one issuer, once somebody began to sign in there with it."""
    site: Site = request.app.state.site
    ourselves = site.ourselves(site.base_url(request))
    issuer = await site.database.auth.document_issuer(digest)
    url = None if issuer is None else ourselves.document_for(issuer)
    if issuer is None or url is None:
        raise HTTPException(404)
    return _document(ourselves, url, ourselves.redirect_for(issuer))


def _document(ourselves: Ourselves, url: str, redirect_uri: str) -> Response:
    headers = {"Cache-Control": f"public, max-age={_DOCUMENT_SECONDS}"}
    return JSONResponse(client_document(ourselves, url, redirect_uri), headers=headers)


async def _problem(request: Request, me: Visitor, error: ToolyardError) -> Response:
    site: Site = request.app.state.site
    named = getattr(error, "server", "")
    if named in site.configuration.servers:
        return sign_in_problem(request, error, f"/ui/servers/{quote(named, safe='')}/connect")
    instance = await _instance_of(request, me, error)
    return sign_in_problem(request, error, None if instance is None else f"/ui/mcp/{instance.id}/connect")


def sign_in_problem(request: Request, error: ToolyardError, again: str | None) -> Response:
    """The page for a sign-in that failed. ``again`` is where the same is begun once more."""
    title = next((words for kind, words in _TITLES if isinstance(error, kind)), "Signing in did not work")
    kept = "Nothing was stored. What you had before is as it was."
    again = None if isinstance(error, Invalid) else again
    page = SignInProblem(title, error.cause, error.hint, kept, again)
    return render(request, "oauth/problem.html", status=kind_of(error).status, page=page)


def _name(server: Server) -> str:
    return server.label or server.id


async def _instance_of(request: Request, me: Visitor, error: ToolyardError) -> Instance | None:
    """The instance that an error names, if it is the visitor's own."""
    named = getattr(error, "server", "")
    site: Site = request.app.state.site
    mine = await site.registry.instances(me.user.id) if named else ()
    return next((instance for instance, _ in mine if instance.core_id == named), None)
