"""OAuth sign-in to servers: redirect to the provider, callback, and a page for each kind of failure.

The client metadata documents that identify Toolyard to providers are served here, too."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from toolyard.auth.client_registration import build_client_metadata_document
from toolyard.auth.errors import (
    AnswerRejected,
    AuthError,
    AuthorizationDenied,
    AuthUnavailable,
    ClientForgotten,
    DiscoveryFailed,
    PkceMissing,
    RegistrationFailed,
    SignInNotNeeded,
    TokenRefused,
)
from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import ToolyardError
from toolyard.registry import Registry
from toolyard.registry.errors import Invalid, NotFound
from toolyard.types.account import RequestUser
from toolyard.types.registry import Instance, InstanceState
from toolyard.types.server import Server
from toolyard.web import service_dependencies as deps
from toolyard.web.problem_details import build_problem_response, describe_error, find_problem_kind
from toolyard.web.public_urls import CLIENT_DOCUMENT_PATH, OAUTH_CALLBACK_PATH
from toolyard.web.routes import Routes
from toolyard.web.servers.config_sign_ins import is_config_sign_in
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import extract_host
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.components.safe_redirect import (
    clear_return_path,
    read_return_path,
    safe_redirect_path,
    set_return_path,
)

__all__ = ["connect_instance", "render_leave_page", "render_sign_in_problem", "router"]

router = Routes(include_in_schema=False)

_DOCUMENT_CACHE_SECONDS = 3600
_RETIRED_REDIRECT_SEGMENT = "retired"
_TITLE_BY_ERROR: tuple[tuple[type[ToolyardError], str], ...] = (
    (NotFound, "Instance not found"),
    (Invalid, "Can’t sign in to this server"),
    (AnswerRejected, "Can’t complete this sign-in"),
    (AuthorizationDenied, "The provider denied access"),
    (ClientForgotten, "The provider no longer recognizes Toolyard"),
    (TokenRefused, "The provider did not complete the sign-in"),
    (RegistrationFailed, "Can’t register with the provider"),
    (PkceMissing, "The provider’s sign-in is not secure"),
    (SignInNotNeeded, "No sign-in needed"),
    (DiscoveryFailed, "Can’t find the sign-in page"),
    (AuthUnavailable, "Can’t reach the provider"),
)
_SIGN_IN_ERRORS = (AuthError, AuthUnavailable, NotFound, Invalid)


@dataclass(frozen=True, slots=True)
class LeavePage:
    """Content of the page that leads to the provider."""

    name: str
    url: str
    host: str
    back: str


@dataclass(frozen=True, slots=True)
class SignInProblemPage:
    """Content of the page about a failed sign-in. ``again`` is the path that starts a new attempt."""

    title: str
    what: str
    hint: str | None
    kept: str
    again: str | None = None


@router.post("/ui/mcp/{instance_id}/connect")
async def connect_instance(
    request: Request,
    me: deps.BrowserUser,
    instance_id: str,
    audit: deps.AuditDep,
    config: deps.ConfigDep,
    urls: deps.UrlsDep,
    registry: deps.RegistryDep,
    instance_sync: deps.InstanceSyncDep,
    sign_ins: deps.SignInsDep,
) -> Response:
    """Begin the sign-in and show a page that leads to the provider, or connect if no sign-in is needed.

    A redirect would be blocked, because the content security policy limits forms to this site
    (``form-action``).
    """
    wants_json = "application/json" in request.headers.get("accept", "")
    try:
        instance, _ = await registry.get_instance(me.user.id, instance_id)
        client_identity = urls.build_client_identity(urls.base_url(request))
        url = await sign_ins.begin(me.user.id, instance_id, me.browser_id, client_identity)
    except _SIGN_IN_ERRORS as error:
        if isinstance(error, SignInNotNeeded):
            await instance_sync.reconnect(me.principal, *await instance_sync.find(me, instance_id))
            instance, _ = await registry.get_instance(me.user.id, instance_id)
            if instance.state is InstanceState.READY:
                message = f"“{instance.name}” is connected. The server needs no sign-in."
                return redirect_with_message(f"/ui/mcp/{instance_id}", message)
        if wants_json:
            return build_problem_response(*describe_error(error))
        return await _render_problem(request, config, registry, me, error)
    await audit.record_change(me, "instance.connect", instance_id, slug=instance.slug)
    if wants_json:
        return JSONResponse({"url": url}, headers={"Cache-Control": "no-store"})
    return await render_leave_page(request, instance.name, url, f"/ui/mcp/{instance_id}")


@router.get(OAUTH_CALLBACK_PATH)
@router.get(OAUTH_CALLBACK_PATH + "/{digest}")
async def finish_sign_in(
    request: Request,
    me: deps.BrowserUser,
    audit: deps.AuditDep,
    instance_sync: deps.InstanceSyncDep,
    config: deps.ConfigDep,
    urls: deps.UrlsDep,
    registry: deps.RegistryDep,
    updates: deps.UpdatesDep,
    sign_ins: deps.SignInsDep,
    notifier: deps.NotifierDep,
    server_sign_ins: deps.ServerSignInsDep,
    digest: str = "",
) -> Response:
    """Finish the sign-in, in the same browser that began it."""
    kind = "instance"
    # Each issuer has its own redirect address, so that a response of one cannot be passed off as another's
    # (mix-up attack, RFC 9700).
    address = urls.base_url(request) + OAUTH_CALLBACK_PATH + (f"/{digest}" if digest else "")
    try:
        response = AuthorizationResponse.from_query(address, request.query_params.multi_items())
        # The state parameter must belong to this person and this browser, which prevents CSRF on the
        # callback.
        pending = await sign_ins.take_pending(response.params, me.user.id, me.browser_id)
        if is_config_sign_in(pending, me):
            kind = "server"
            server = await server_sign_ins.complete_config_sign_in(me, pending, response)
            return _redirect_after_sign_in(
                request,
                f"/ui/servers/{quote(server.id, safe='')}",
                f"You are signed in to “{_get_server_label(server)}”.",
            )
        instance = await sign_ins.complete(pending, response, me.user.id)
    except _SIGN_IN_ERRORS as error:
        why = type(error).__name__
        await audit.record_change(me, f"{kind}.sign_in_failed", getattr(error, "server", ""), why=why)
        return await _render_problem(request, config, registry, me, error)
    await audit.record_change(me, "instance.sign_in", instance.id, slug=instance.slug)
    await instance_sync.sync(me.principal)
    await updates.reconnect(instance.core_id, me.principal)
    notifier.notify_servers_changed(me.principal, (instance.core_id,))
    message = f"“{instance.name}” is connected."
    return _redirect_after_sign_in(request, f"/ui/mcp#i-{instance.id}", message)


@router.get(CLIENT_DOCUMENT_PATH)
async def show_shared_client_document(request: Request, urls: deps.UrlsDep) -> Response:
    """Return the client metadata document of earlier versions, shared by all issuers.

    Existing grants are refreshed with it. New sign-ins cannot use it, because its redirect address is
    retired.
    """
    client_identity = urls.build_client_identity(urls.base_url(request))
    if client_identity.document_url is None:
        raise HTTPException(404)
    return _respond_with_document(
        client_identity,
        client_identity.document_url,
        f"{client_identity.redirect_uri}/{_RETIRED_REDIRECT_SEGMENT}",
    )


@router.get(CLIENT_DOCUMENT_PATH.removesuffix(".json") + "/{digest}.json")
async def show_issuer_client_document(
    request: Request, digest: str, urls: deps.UrlsDep, auth_storage: deps.AuthStorageDep
) -> Response:
    """Return the client metadata document of one issuer. 404 before the first sign-in with it."""
    client_identity = urls.build_client_identity(urls.base_url(request))
    issuer = await auth_storage.get_document_issuer(digest)
    url = None if issuer is None else client_identity.document_url_for(issuer)
    if issuer is None or url is None:
        raise HTTPException(404)
    return _respond_with_document(client_identity, url, client_identity.redirect_uri_for(issuer))


def _respond_with_document(client_identity: ClientIdentity, url: str, redirect_uri: str) -> Response:
    headers = {"Cache-Control": f"public, max-age={_DOCUMENT_CACHE_SECONDS}"}
    return JSONResponse(build_client_metadata_document(client_identity, url, redirect_uri), headers=headers)


async def render_leave_page(request: Request, name: str, url: str, back: str) -> Response:
    """Render the page that leads to the provider. A sign-in that was started in a chat returns there."""
    requested = (await read_submitted_form(request)).text("next")
    page = LeavePage(name, url, extract_host(url), safe_redirect_path(requested, back))
    response = render_page(request, "oauth/leave.html", page=page)
    # “Try again” after a failed sign-in has no such field, and keeps the page to return to.
    if requested:
        set_return_path(response, requested)
    return response


def _redirect_after_sign_in(request: Request, default: str, message: str) -> Response:
    response = redirect_with_message(read_return_path(request, default), message)
    clear_return_path(response)
    return response


async def _render_problem(
    request: Request, config: CurrentConfig, registry: Registry, me: RequestUser, error: ToolyardError
) -> Response:
    named = getattr(error, "server", "")
    if named in config.configuration.servers:
        return render_sign_in_problem(request, error, f"/ui/servers/{quote(named, safe='')}/connect")
    instance = await _find_named_instance(request, registry, me, error)
    return render_sign_in_problem(
        request, error, None if instance is None else f"/ui/mcp/{instance.id}/connect"
    )


def render_sign_in_problem(request: Request, error: ToolyardError, retry_path: str | None) -> Response:
    """Render the page about a failed sign-in. ``retry_path`` starts a new attempt; None shows no button."""
    title = next((words for kind, words in _TITLE_BY_ERROR if isinstance(error, kind)), "Sign-in failed")
    kept = "Nothing was changed."
    # Trying again would fail in the same way.
    retry_path = None if isinstance(error, Invalid) else retry_path
    page = SignInProblemPage(title, error.cause, error.hint, kept, retry_path)
    return render_page(request, "oauth/problem.html", status=find_problem_kind(error).status, page=page)


def _get_server_label(server: Server) -> str:
    return server.label or server.id


async def _find_named_instance(
    request: Request, registry: Registry, me: RequestUser, error: ToolyardError
) -> Instance | None:
    """Return the instance that an error names, if it belongs to the person."""
    named = getattr(error, "server", "")
    own = await registry.list_instances(me.user.id) if named else ()
    return next((instance for instance, _ in own if instance.core_id == named), None)
