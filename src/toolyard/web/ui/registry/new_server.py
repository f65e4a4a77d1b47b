"""``/ui/admin/mcp/new``: adding a server. By default, the server itself is asked how to sign in.

In the mode ``none``, the server's only user gets an instance of it at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.auth.errors import AuthUnavailable
from toolyard.config.settings.table import PeopleMode
from toolyard.core.audit import AuditRecorder
from toolyard.errors import PrivateAddress, ServerError, SignInNeeded
from toolyard.registry import Registry
from toolyard.registry.field_validation import TEXT_FAULTS
from toolyard.registry.service import propose
from toolyard.types.registry import (
    AuthKind,
    ChoiceDraft,
    InstanceDraft,
    RegistryServer,
    ServerDraft,
    TextRule,
)
from toolyard.web.access.dependencies import RequestUser, require_admin
from toolyard.web.routes import Routes
from toolyard.web.server_preview import ServerPreview, ServerPreviews
from toolyard.web.service_dependencies import (
    AuditDep,
    AuthStorageDep,
    InstanceSyncDep,
    PreviewsDep,
    RegistryDep,
    SettingsDep,
    UrlsDep,
)
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import extract_host
from toolyard.web.ui.components.forms import FORM_ERRORS, read_submitted_form
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.registry.form import (
    AUTOMATIC,
    FormNotice,
    ServerForms,
    read_draft,
)

__all__ = ["create_own_instance", "router"]

router = Routes()

AdminUser = Annotated[RequestUser, Depends(require_admin)]

_KEY_HEADER = "Authorization"


@router.get("/ui/admin/mcp/new")
async def show_new_server_form(
    request: Request, me: AdminUser, urls: UrlsDep, auth_storage: AuthStorageDep
) -> Response:
    """Show an empty form."""
    draft = ServerDraft("", "", choices=(ChoiceDraft(AUTOMATIC),))
    forms = ServerForms(request, urls, auth_storage)
    return render_page(request, "server_form.html", page=await forms.build(draft))


@router.post("/ui/admin/mcp/new")
async def add_server(
    request: Request,
    me: AdminUser,
    audit: AuditDep,
    urls: UrlsDep,
    settings: SettingsDep,
    registry: RegistryDep,
    auth_storage: AuthStorageDep,
    previews: PreviewsDep,
    instance_sync: InstanceSyncDep,
) -> Response:
    """Add the server, and redirect to its page or to that of the user's instance."""
    form = await read_submitted_form(request)
    draft, pressed = read_draft(form), form.text("do", "save")
    forms = ServerForms(request, urls, auth_storage)
    if (changed := await forms.apply_choice_button(pressed, draft)) is not None:
        return render_page(request, "server_form.html", page=changed)
    if pressed == "allow-private":
        draft = replace(draft, private_addresses=True)
    try:
        if pressed == "add-anyway":
            draft = _fill_draft(draft, AuthKind.OAUTH, ServerPreview())
        draft, notice = await _find_sign_in(previews, registry, me, draft)
        if notice is not None:
            return render_page(request, "server_form.html", page=await forms.build(draft, notice=notice))
        server = await registry.add_server(draft)
    except FORM_ERRORS as error:
        page = await forms.build(draft, error=error)
        return render_page(request, "server_form.html", status=422, page=page)
    await audit.record_change(me, "server.add", server.id, name=server.name, url=server.url)
    if settings.people_mode is not PeopleMode.NONE:
        message = f"“{server.name}” was added to the registry."
        return redirect_with_message(f"/ui/admin/mcp/{server.id}", message)
    if any(choice.kind is AuthKind.HEADER for choice in server.choices):
        message = f"“{server.name}” was added. Enter your key to use it."
        return redirect_with_message(f"/ui/mcp/new?server={server.id}", message)
    instance_id = await create_own_instance(registry, audit, me, server)
    await instance_sync.sync(me.principal)
    return redirect_with_message(f"/ui/mcp/{instance_id}", f"“{server.name}” was added.")


async def create_own_instance(
    registry: Registry, audit: AuditRecorder, me: RequestUser, server: RegistryServer
) -> str:
    """Create an instance for the request's user that needs no input, and return its id.

    It uses OAuth if the server offers that.
    """
    choice = next((each for each in server.choices if each.kind is AuthKind.OAUTH), server.choices[0])
    made = await registry.create_instance(me.user.id, InstanceDraft(server.id, choice.id))
    await audit.record_change(me, "instance.create", made.id, slug=made.slug, server=server.id)
    return made.id


async def _find_sign_in(
    previews: ServerPreviews, registry: Registry, me: RequestUser, draft: ServerDraft
) -> tuple[ServerDraft, FormNotice | None]:
    """Replace an automatic sign-in method by the one that the server asks for.

    The notice says what is missing if the server cannot be added yet. Raises Invalid.
    """
    if all(choice.kind != AUTOMATIC for choice in draft.choices):
        return draft, None
    checked = registry.check_server(replace(draft, name=draft.name.strip() or "-", choices=()))
    preview = await previews.fetch_server_preview(me, checked)
    error, offered = preview.error, preview.offered_issuer
    if isinstance(error, PrivateAddress):
        return draft, FormNotice(
            f"{extract_host(draft.url)} is a private address",
            "Toolyard connects to servers in your own network only if you allow it for each of them.",
            "Allow it only for a server that you run: addresses that it refers to may then be private, too.",
            "Allow and add",
            "allow-private",
        )
    if isinstance(error, SignInNeeded) and offered is not None:
        if offered.issuer:
            return _fill_draft(draft, AuthKind.OAUTH, preview), None
        if isinstance(offered.error, AuthUnavailable):
            return draft, _build_failure_notice(offered.error)
        return _fill_draft(draft, AuthKind.HEADER, preview), FormNotice(
            "The server needs an API key",
            f"It {error.cause}. It does not offer OAuth.",
            "Enter the name of the header or query parameter that carries the key. Each person enters their"
            " own key.",
        )
    if error is None or preview.protocol_version is not None:
        return _fill_draft(draft, AuthKind.PUBLIC, preview), None
    return draft, _build_failure_notice(error)


def _build_failure_notice(error: ServerError) -> FormNotice:
    return FormNotice(
        "Couldn’t find out how to sign in", error.cause, error.hint or "", "Add anyway", "add-anyway"
    )


def _fill_draft(draft: ServerDraft, kind: AuthKind, preview: ServerPreview) -> ServerDraft:
    """Return the draft with the sign-in method that was found, and a name."""
    found = ChoiceDraft(kind.value, key=_KEY_HEADER if kind is AuthKind.HEADER else None)
    choices = tuple(found if choice.kind == AUTOMATIC else choice for choice in draft.choices)
    return replace(draft, choices=choices, name=draft.name.strip() or _choose_name(draft.url, preview))


def _choose_name(url: str, preview: ServerPreview) -> str:
    """Return the name that the server reports, if it is usable, else one from its address."""
    for reported in (preview.server_info.get("title"), preview.server_info.get("name")):
        if isinstance(reported, str) and TEXT_FAULTS[TextRule.NAME](reported.strip()) is None:
            return reported.strip()
    return propose(url)
