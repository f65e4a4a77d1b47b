"""``/ui/admin/models``: all models, and the forms of those that admins add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from fastapi import Request, Response

from toolyard.agents.models.available_models import ModelTestAnswer
from toolyard.agents.models.errors import ModelError
from toolyard.config.settings.model_entries import MODEL_PROVIDERS
from toolyard.core.audit import AuditRecorder
from toolyard.errors import ToolyardError
from toolyard.registry.errors import Outdated
from toolyard.registry.model_registry import ModelRegistry
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.types.account import LOCAL_PRINCIPAL, RequestUser
from toolyard.types.stored_model import LOCAL_PROVIDER, ModelDraft, StoredModel
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses

__all__ = ["router"]

router = Routes()

_MODELS_PATH = "/ui/admin/models"
_SPECS = forms.form_specs(StoredModel)
_LABELS = {name: spec.label for name, spec in _SPECS.items()}
_COMPATIBLE = "compatible"
"""Choice of the form that stands for OpenAI's provider at a custom address."""
_COMPATIBLE_PROVIDER = "openai"
_NUMBERS = ("input_price", "output_price", "temperature", "context")
_FLAGS = {"": None, "yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class ModelForm:
    """Content of the form. Keys are never sent back to the browser."""

    draft: ModelDraft
    kind: str
    texts: Mapping[str, str]
    """Numbers and names of people as they were entered."""
    stored: StoredModel | None = None
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    revision: int | None = None
    """Revision that the form was opened with."""
    answer: ModelTestAnswer | None = None
    failure: ModelError | None = None
    is_outdated: bool = False
    is_test: bool = False
    """True if the form was sent for a test, beside whose button errors are shown."""

    specs = _SPECS
    labels = _LABELS

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Providers to choose from, with their labels."""
        return [
            *((name, each.label) for name, each in MODEL_PROVIDERS.items()),
            (_COMPATIBLE, "OpenAI-compatible endpoint"),
            (LOCAL_PROVIDER, "Local model on this machine"),
        ]

    @property
    def action(self) -> str:
        """URL that receives the form."""
        return f"{_MODELS_PATH}/new" if self.stored is None else f"{_MODELS_PATH}/{self.stored.name}/edit"

    @property
    def has_options(self) -> bool:
        """True if the part for less common fields is open: they are used, or have errors."""
        draft = self.draft
        used = (draft.sees, draft.hears, draft.temperature, draft.context)
        is_named = self.stored is None and draft.name
        names = {"name", "sees", "hears", "temperature", "context"}
        return any(each is not None for each in used) or bool(is_named) or not names.isdisjoint(self.errors)


@router.get(_MODELS_PATH)
async def list_models(
    request: Request, me: deps.AdminUser, model_registry: deps.ModelRegistryDep
) -> Response:
    """Show all models: those that admins added, and those of files and variables with the installed one."""
    listed, models = await model_registry.list_models(), model_registry.models
    return responses.render_page(
        request,
        "models.html",
        stored=[each for each in listed if each.origin is None],
        configured=[each for each in listed if each.origin is not None],
        default=models.default_for(me.user.principal),
        default_origin=models.default_origin,
        provider_labels={name: each.label for name, each in MODEL_PROVIDERS.items()}
        | {LOCAL_PROVIDER: "On this machine"},
    )


@router.get(_MODELS_PATH + "/new")
async def show_new_form(request: Request, me: deps.AdminUser) -> Response:
    """Show the form of a new model."""
    return _render_form(request, ModelForm(ModelDraft(), _COMPATIBLE_PROVIDER, {}))


@router.post(_MODELS_PATH + "/new")
async def add_model(
    request: Request,
    me: deps.AdminUser,
    form: forms.FormDep,
    audit: deps.AuditDep,
    accounts: deps.AccountsDep,
    model_registry: deps.ModelRegistryDep,
) -> Response:
    """Add the model, or test it without adding it."""
    page = await _read_form(form, accounts, None)
    if page.errors:
        return await _render_all_errors(request, model_registry, page)
    try:
        if page.is_test:
            return await _render_test(request, me, audit, model_registry, page)
        model = await model_registry.add_model(page.draft)
    except forms.FORM_ERRORS as error:
        return _render_refusal(request, page, error)
    await audit.record_change(me, "model.add", model.name, provider=model.provider)
    return responses.redirect_to(_MODELS_PATH, f"“{model.title}” was added.")


@router.get(_MODELS_PATH + "/{name}/edit")
async def show_edit_form(
    request: Request,
    me: deps.AdminUser,
    name: str,
    accounts: deps.AccountsDep,
    model_registry: deps.ModelRegistryDep,
) -> Response:
    """Show the form of a stored model."""
    stored = await model_registry.get_model(name)
    return _render_form(request, await _build_form(stored, accounts))


@router.post(_MODELS_PATH + "/{name}/edit")
async def save_model(
    request: Request,
    me: deps.AdminUser,
    name: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    accounts: deps.AccountsDep,
    model_registry: deps.ModelRegistryDep,
) -> Response:
    """Save the model, or test it without saving. An empty key keeps the stored one."""
    page = await _read_form(form, accounts, await model_registry.get_model(name))
    if page.errors:
        return await _render_all_errors(request, model_registry, page)
    try:
        if page.is_test:
            return await _render_test(request, me, audit, model_registry, page)
        await model_registry.edit_model(name, page.draft, page.revision)
    except Outdated as error:
        current = error.current if isinstance(error.current, StoredModel) else page.stored
        return _render_form(request, replace(page, stored=current, is_outdated=True))
    except forms.FORM_ERRORS as error:
        return _render_refusal(request, page, error)
    await audit.record_change(me, "model.edit", name)
    return responses.redirect_to(_MODELS_PATH, f"“{page.draft.label or name}” was saved.")


@router.post(_MODELS_PATH + "/{name:path}/test")
async def test_model(
    me: deps.AdminUser,
    name: str,
    audit: deps.AuditDep,
    model_registry: deps.ModelRegistryDep,
) -> Response:
    """Send a short request to a model, and show what came of it."""
    await audit.record_change(me, "model.test", name)
    title = model_registry.models.find_title(name)
    try:
        answer = await model_registry.test_model(name)
    except ModelError as error:
        return responses.redirect_to(_MODELS_PATH, f"“{title}”: {error.cause}", kind="bad", hint=error.hint)
    return responses.redirect_to(_MODELS_PATH, f"“{title}” answered in {answer.seconds:.1f} s.")


@router.post(_MODELS_PATH + "/{name}/default")
async def make_default(
    me: deps.AdminUser,
    name: str,
    audit: deps.AuditDep,
    model_registry: deps.ModelRegistryDep,
) -> Response:
    """Make a stored model the default of new chats."""
    stored = await model_registry.get_model(name)
    await model_registry.edit_model(name, replace(stored.to_draft(), is_default=True))
    await audit.record_change(me, "model.edit", name, fields=["is_default"])
    return responses.redirect_to(_MODELS_PATH, f"New chats use “{stored.title}”.")


@router.get(_MODELS_PATH + "/{name}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.AdminUser, name: str, model_registry: deps.ModelRegistryDep
) -> Response:
    """Show the confirmation page."""
    stored = await model_registry.get_model(name)
    return responses.render_confirmation(
        request,
        title=f"Delete “{stored.title}”?",
        text="This also deletes its key. Chats and agents that use it need another model.",
        action=f"{_MODELS_PATH}/{stored.name}/delete",
        back=_MODELS_PATH,
    )


@router.post(_MODELS_PATH + "/{name}/delete")
async def delete_model(
    me: deps.AdminUser,
    name: str,
    audit: deps.AuditDep,
    model_registry: deps.ModelRegistryDep,
) -> Response:
    """Delete a stored model with its key."""
    title = model_registry.models.find_title(name)
    await model_registry.delete_model(name)
    await audit.record_change(me, "model.delete", name)
    return responses.redirect_to(_MODELS_PATH, f"“{title}” was deleted.")


async def _render_test(
    request: Request, me: RequestUser, audit: AuditRecorder, model_registry: ModelRegistry, page: ModelForm
) -> Response:
    """Ask the model of the form, with the entered key, and show the form again."""
    model = await model_registry.check_model(page.draft, page.stored)
    await audit.record_change(me, "model.test", model.name)
    try:
        return _render_form(request, replace(page, answer=await model_registry.test_model(model)))
    except ModelError as error:
        return _render_form(request, replace(page, failure=error))


async def _render_all_errors(request: Request, model_registry: ModelRegistry, page: ModelForm) -> Response:
    """Show the form with the errors of its texts and of all other fields, so that one correction suffices."""
    # Without its address, an endpoint would be checked as a model of OpenAI.
    if "base_url" not in page.errors:
        try:
            await model_registry.check_model(page.draft, page.stored)
        except forms.FORM_ERRORS as error:
            page = replace(page, errors={**forms.field_errors(error, _LABELS), **page.errors})
    return _render_form(request, page)


def _render_refusal(request: Request, page: ModelForm, error: ToolyardError) -> Response:
    return _render_form(request, replace(page, errors=forms.field_errors(error, _LABELS)))


def _render_form(request: Request, page: ModelForm) -> Response:
    status = 409 if page.is_outdated else 422 if page.errors else 200
    return responses.render_page(request, "model_form.html", status=status, page=page)


async def _build_form(stored: StoredModel, accounts: SqlAccountStorage) -> ModelForm:
    names: list[str] = []
    for user_id in stored.people:
        user = await accounts.get_user(user_id)
        names.append(user_id if user is None else user.name)
    texts = {name: f"{value:g}" for name in _NUMBERS if (value := getattr(stored, name)) is not None}
    is_compatible = stored.provider == _COMPATIBLE_PROVIDER and stored.base_url is not None
    kind = _COMPATIBLE if is_compatible else stored.provider
    return ModelForm(stored.to_draft(), kind, {**texts, "people": "\n".join(names)}, stored)


async def _read_form(
    form: forms.SubmittedForm, accounts: SqlAccountStorage, stored: StoredModel | None
) -> ModelForm:
    """Return the submitted form, with the errors of invalid fields."""
    values = form.read_fields(StoredModel)
    errors: dict[str, str] = {}
    kind = values["provider"]
    if kind == _COMPATIBLE:
        values["provider"] = _COMPATIBLE_PROVIDER
        if values["base_url"] is None:
            errors["base_url"] = "Enter the address of the endpoint."
    texts = {name: form.text(name).strip() for name in (*_NUMBERS, "people")}
    for name in _NUMBERS:
        values[name] = _parse_number(texts[name])
        if texts[name] and values[name] is None:
            errors[name] = f"{_LABELS[name]} is not a number."
    if texts["context"] and values["context"] is not None:
        values["context"] = int(values["context"])
    values["people"] = tuple([await _find_user_id(name, accounts) for name in values["people"]])
    for name in ("sees", "hears"):
        values[name] = _FLAGS.get(form.text(name))
    # An empty field keeps the stored key (None); the checkbox removes it (empty text).
    values["api_key"] = form.text("api_key").strip() or ("" if form.is_checked("drop_key") else None)
    revision = forms.parse_number(form.text("revision"))
    is_test = form.text("do") == "test"
    return ModelForm(ModelDraft(**values), kind, texts, stored, errors, revision, is_test=is_test)


async def _find_user_id(name: str, accounts: SqlAccountStorage) -> str:
    """Return the id of a person. A name that nobody has is returned as it is, and refused later."""
    if name in (LOCAL_PRINCIPAL.id, LOCAL_PRINCIPAL.name):
        return LOCAL_PRINCIPAL.id
    user = await accounts.find_user_by_name(name)
    return name if user is None else user.id


def _parse_number(text: str) -> float | None:
    """Return a finite number; None for any other text, also for inf and nan."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
