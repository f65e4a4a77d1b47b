"""OAuth sign-in to servers: redirect to the provider, callback, and a page for each kind of failure.

The client metadata documents that identify Toolyard to providers are served here, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from toolyard.auth import errors as auth
from toolyard.auth.client_registration import build_client_metadata_document
from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.errors import ToolyardError
from toolyard.registry.errors import Invalid, NotFound
from toolyard.types.registry import InstanceState
from toolyard.web import service_dependencies as deps
from toolyard.web.problem_details import build_problem_response, describe_error, find_problem_kind
from toolyard.web.public_urls import CLIENT_DOCUMENT_PATH, OAUTH_CALLBACK_PATH
from toolyard.web.routes import Routes
from toolyard.web.servers.config_sign_ins import is_config_sign_in
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import extract_host

__all__ = ["InstanceSignInPagesDep", "render_leave_page", "render_sign_in_problem", "router"]

router = Routes(include_in_schema=False)

_DOCUMENT_CACHE_SECONDS = 3600
_RETIRED_REDIRECT_SEGMENT = "retired"
_TITLE_BY_ERROR: tuple[tuple[type[ToolyardError], str], ...] = (
    (NotFound, "Instance not found"),
    (Invalid, "Can’t sign in to this server"),
    (auth.AnswerRejected, "Can’t complete this sign-in"),
    (auth.AuthorizationDenied, "The provider denied access"),
    (auth.ClientForgotten, "The provider no longer recognizes Toolyard"),
    (auth.TokenRefused, "The provider did not complete the sign-in"),
    (auth.RegistrationFailed, "Can’t register with the provider"),
    (auth.PkceMissing, "The provider’s sign-in is not secure"),
    (auth.SignInNotNeeded, "No sign-in needed"),
    (auth.DiscoveryFailed, "Can’t find the sign-in page"),
    (auth.AuthUnavailable, "Can’t reach the provider"),
)
_RETURN_COOKIE_NAME = "toolyard_return"
_RETURN_LIFETIME_SECONDS = 1800
_RETURN_PREFIX = "/ui/chat"
_PRIVATE_ADDRESS_HINT = "Allow it only for a server that you run"
_SIGN_IN_ERRORS = (auth.AuthError, auth.AuthUnavailable, NotFound, Invalid)


@dataclass(frozen=True, slots=True)
class InstanceSignInPages:
    """Pages of a person's sign-in to an instance."""

    request: Request
    me: deps.BrowserUser
    audit: deps.AuditDep
    config: deps.ConfigDep
    urls: deps.UrlsDep
    registry: deps.RegistryDep
    instance_sync: deps.InstanceSyncDep
    sign_ins: deps.SignInsDep

    async def begin(self, instance_id: str) -> Response:
        """Begin the sign-in and show a page that leads to the provider, or connect if none is needed.

        A redirect would be blocked, because the content security policy limits forms to this site
        (``form-action``).
        """
        request, me, path = self.request, self.me, f"/ui/mcp/{instance_id}"
        wants_json = "application/json" in request.headers.get("accept", "")
        try:
            instance, _ = await self.registry.get_instance(me.user.id, instance_id)
            client_identity = self.urls.build_client_identity(self.urls.base_url(request))
            url = await self.sign_ins.begin(me.user.id, instance_id, me.browser_id, client_identity)
        except _SIGN_IN_ERRORS as error:
            if isinstance(error, auth.SignInNotNeeded):
                found = await self.instance_sync.find(me, instance_id)
                await self.instance_sync.reconnect(me.principal, *found)
                instance, _ = await self.registry.get_instance(me.user.id, instance_id)
                if instance.state is InstanceState.READY:
                    message = f"“{instance.name}” is connected. The server needs no sign-in."
                    return responses.redirect_to(path, message)
            if wants_json:
                return build_problem_response(*describe_error(error))
            return await self.render_problem(error)
        await self.audit.record_change(me, "instance.connect", instance_id, slug=instance.slug)
        if wants_json:
            return JSONResponse({"url": url}, headers={"Cache-Control": "no-store"})
        return await render_leave_page(request, instance.name, url, path)

    async def render_problem(self, error: ToolyardError) -> Response:
        """Render the page about a failed sign-in to the server or instance that the error names."""
        named = getattr(error, "server", "")
        if named in self.config.configuration.servers:
            return render_sign_in_problem(self.request, error, f"/ui/servers/{quote(named, safe='')}/connect")
        own = await self.registry.list_instances(self.me.user.id) if named else ()
        instance, server = next((pair for pair in own if pair[0].core_id == named), (None, None))
        if instance is None or server is None:
            return render_sign_in_problem(self.request, error, None)
        allow_path = f"/ui/admin/mcp/{server.id}/allow-private" if self.me.is_admin else None
        return render_sign_in_problem(self.request, error, f"/ui/mcp/{instance.id}/connect", allow_path)


InstanceSignInPagesDep = Annotated[InstanceSignInPages, Depends()]


@router.post("/ui/mcp/{instance_id}/connect")
async def connect_instance(instance_id: str, pages: InstanceSignInPagesDep) -> Response:
    """Begin the sign-in to an instance."""
    return await pages.begin(instance_id)


@router.get(OAUTH_CALLBACK_PATH)
@router.get(OAUTH_CALLBACK_PATH + "/{digest}")
async def finish_sign_in(
    request: Request,
    me: deps.BrowserUser,
    pages: InstanceSignInPagesDep,
    updates: deps.UpdatesDep,
    notifier: deps.NotifierDep,
    server_sign_ins: deps.ServerSignInsDep,
    digest: str = "",
) -> Response:
    """Finish the sign-in, in the same browser that began it."""
    kind = "instance"
    # Each issuer has its own redirect URI, so that a response of one cannot be passed off as another's
    # (mix-up attack, RFC 9700).
    address = pages.urls.base_url(request) + OAUTH_CALLBACK_PATH + (f"/{digest}" if digest else "")
    try:
        response = AuthorizationResponse.from_query(address, request.query_params.multi_items())
        # The state parameter must belong to this person and this browser, which prevents CSRF on the
        # callback.
        pending = await pages.sign_ins.take_pending(response.params, me.user.id, me.browser_id)
        if is_config_sign_in(pending, me):
            kind = "server"
            server = await server_sign_ins.complete_config_sign_in(me, pending, response)
            path, label = f"/ui/servers/{quote(server.id, safe='')}", server.label or server.id
            return _redirect_after_sign_in(request, path, f"You are signed in to “{label}”.")
        instance = await pages.sign_ins.complete(pending, response, me.user.id)
    except _SIGN_IN_ERRORS as error:
        why = type(error).__name__
        await pages.audit.record_change(me, f"{kind}.sign_in_failed", getattr(error, "server", ""), why=why)
        return await pages.render_problem(error)
    await pages.audit.record_change(me, "instance.sign_in", instance.id, slug=instance.slug)
    await pages.instance_sync.sync(me.principal)
    await updates.reconnect(instance.core_id, me.principal)
    notifier.notify_servers_changed(me.principal, (instance.core_id,))
    message = f"“{instance.name}” is connected."
    return _redirect_after_sign_in(request, f"/ui/mcp#i-{instance.id}", message)


@router.get(CLIENT_DOCUMENT_PATH)
async def show_shared_client_document(request: Request, urls: deps.UrlsDep) -> Response:
    """Return the client metadata document of earlier versions, shared by all issuers.

    Existing grants are refreshed with it. New sign-ins cannot use it, because its redirect URI is
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
    form = await forms.read_form(request)
    response = responses.render_page(
        request, "oauth/leave.html", name=name, url=url, host=extract_host(url), back=form.next_path(back)
    )
    # “Try again” after a failed sign-in has no such field, and keeps the page to return to.
    if form.text("next"):
        _set_return_path(response, form.text("next"))
    return response


def _redirect_after_sign_in(request: Request, default: str, message: str) -> Response:
    response = responses.redirect_to(_read_return_path(request, default), message)
    _clear_return_path(response)
    return response


def render_sign_in_problem(
    request: Request, error: ToolyardError, retry_path: str | None, allow_private_path: str | None = None
) -> Response:
    """Render the page about a failed sign-in.

    ``retry_path`` starts a new attempt. ``allow_private_path`` allows private addresses for the server, if
    the sign-in failed because they are not allowed. None shows no button.
    """
    is_private = isinstance(error, auth.AddressNotAllowed) and error.is_private
    title = next((words for kind, words in _TITLE_BY_ERROR if isinstance(error, kind)), "Sign-in failed")
    return responses.render_page(
        request,
        "oauth/problem.html",
        status=find_problem_kind(error).status,
        title=title,
        what=error.cause,
        hint=_PRIVATE_ADDRESS_HINT if is_private and allow_private_path else error.hint,
        allow_private=allow_private_path if is_private else None,
        # Trying again would fail in the same way.
        again=None if isinstance(error, Invalid) else retry_path,
    )


# A sign-in to a server that was started in a chat returns there from the provider. A cookie carries the path,
# because the redirect URI at the provider is fixed.


def _set_return_path(response: Response, requested: str) -> None:
    """Remember the chat page to return to. Any other page makes an earlier one forgotten."""
    path = forms.safe_redirect_path(requested, "")
    if not path.startswith(_RETURN_PREFIX) or len(path) > 200:
        _clear_return_path(response)
        return
    response.set_cookie(
        _RETURN_COOKIE_NAME,
        path,
        max_age=_RETURN_LIFETIME_SECONDS,
        path="/ui/",
        httponly=True,
        samesite="lax",
    )


def _read_return_path(request: Request, default: str) -> str:
    """Return the remembered chat page, else ``default``."""
    path = forms.safe_redirect_path(request.cookies.get(_RETURN_COOKIE_NAME, ""), "")
    return path if path.startswith(_RETURN_PREFIX) else default


def _clear_return_path(response: Response) -> None:
    """Forget the page to return to."""
    response.delete_cookie(_RETURN_COOKIE_NAME, path="/ui/", httponly=True, samesite="lax")
