"""``/models``: the models available to chats. ``/model-entries``: their administration, those of files and
variables included."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from toolyard.agents.models.available_models import ListedModel
from toolyard.errors import Outdated
from toolyard.types.stored_model import ModelDraft, StoredModel
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api
from toolyard.web.api.record_models import (
    changed_values,
    draft_values,
    output_values,
    request_model,
    response_model,
)

__all__ = ["router"]

router = api.ApiRoutes()

# Models for chats.


class ModelResponse(api.ApiModel, schema="ModelShown"):
    """A model. Its key and endpoint are not shown."""

    id: str = Field(description="Id by which a chat refers to the model.", examples=["fast"])
    label: str
    provider: str = Field(examples=["openai"])
    sees: bool = Field(description="Whether images in results are sent to the model.")
    hears: bool = Field(description="Whether sounds in results are sent to the model.")


class ModelList(BaseModel):
    """The configured models."""

    items: list[ModelResponse] = Field(description="Available models. If empty, chats can only run tools.")
    default: str | None


@router.get("/models", tags=["chats"], summary="List models")
async def list_models(chats: deps.ChatsDep, request_user: api.ChatReader) -> ModelList:
    """Return the models that your chats can use, those of the settings first, in their order."""
    person = request_user.user.principal
    items = [
        ModelResponse(id=each.id, label=each.label, provider=each.provider, sees=each.sees, hears=each.hears)
        for each in chats.models.choices_for(person)
    ]
    return ModelList(items=items, default=chats.models.default_for(person))


# Administration.


class CreateModelRequest(request_model(StoredModel), schema="ModelEntryGiven"):
    """A model to add."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "fast",
                    "provider": "openai",
                    "model": "gpt-5-mini",
                    "key_variable": "OPENAI_API_KEY",
                }
            ]
        }
    )

    def draft(self) -> ModelDraft:
        """Return the input of the registry."""
        return ModelDraft(**draft_values(self.model_dump()))


class UpdateModelRequest(
    request_model(StoredModel, partial=True, without="name"), schema="ModelEntryChanges"
):
    """Changes to a model; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"audience": "admins", "revision": 1}]})

    revision: int | None = Field(
        default=None, description="Revision that the changes are based on. If there is a newer one, 409."
    )

    def draft(self, old: StoredModel) -> ModelDraft:
        """Return the input of the registry: the old model with the changes applied."""
        changes = changed_values(self, StoredModel)
        if changes.get("api_key"):
            changes.setdefault("key_variable", None)
        return replace(old.to_draft(), **changes)


class ModelEntryResponse(response_model(StoredModel), schema="ModelEntryShown"):
    """A model. Its key is never returned."""

    origin: str | None = Field(description="File, line or variable that defines it; null for a stored model.")
    overridden: bool = Field(
        description="Whether a file or variable has a model of this name, which is used instead."
    )
    problem: str | None = Field(description="Why it cannot be used at the moment.")


class ModelEntryList(api.ItemList[ModelEntryResponse]):
    """All models."""


class ModelTestResponse(api.ApiModel, schema="ModelTestShown"):
    """Answer of a model to a short request."""

    seconds: float = Field(description="Seconds from sending the request to the end of the answer.")
    answer: str = Field(description="Beginning of the answer.")


@router.get("/model-entries", tags=["models"], summary="List model entries")
async def list_model_entries(
    model_registry: deps.ModelRegistryDep, request_user: deps.AdminUser
) -> ModelEntryList:
    """Return the models of files and variables, then the stored ones by name, then the local one."""
    return ModelEntryList(items=[_build_response(each) for each in await model_registry.list_models()])


@router.post(
    "/model-entries",
    tags=["models"],
    status_code=201,
    errors=[409, 413, 415],
    summary="Add a model",
)
async def add_model(
    audit: deps.AuditDep,
    model_registry: deps.ModelRegistryDep,
    request_user: deps.AdminUser,
    given: CreateModelRequest,
    response: Response,
) -> ModelEntryResponse:
    """Add a model. Toolyard does not connect to it."""
    model = await model_registry.add_model(given.draft())
    await audit.record_change(request_user, "model.add", model.name, provider=model.provider)
    response.headers["Location"] = f"/api/v1/model-entries/{model.name}"
    return _build_response(ListedModel(model))


@router.get("/model-entries/{name}", tags=["models"], errors=[404], summary="Get a stored model")
async def get_model(
    model_registry: deps.ModelRegistryDep, request_user: deps.AdminUser, name: api.PathId
) -> ModelEntryResponse:
    """Return a stored model."""
    return _build_response(ListedModel(await model_registry.get_model(name)))


@router.patch(
    "/model-entries/{name}",
    tags=["models"],
    errors=[404, 409, 413, 415],
    summary="Change a stored model",
)
async def edit_model(
    audit: deps.AuditDep,
    model_registry: deps.ModelRegistryDep,
    request_user: deps.AdminUser,
    name: api.PathId,
    given: UpdateModelRequest,
) -> ModelEntryResponse:
    """Change the given fields, on all replicas at once. A stored key is dropped if the host of the address
    changes, so that `api_key` or `key_variable` is required then. If `revision` is not the newest, nothing
    is changed, and the problem has the stored model in `current` (409)."""
    draft = given.draft(await model_registry.get_model(name))
    try:
        model = await model_registry.edit_model(name, draft, given.revision)
    except Outdated as error:
        if isinstance(error.current, StoredModel):
            error.current = _build_response(ListedModel(error.current))
        raise
    fields = sorted(given.model_fields_set - {"revision"})
    await audit.record_change(request_user, "model.edit", name, fields=fields)
    return _build_response(ListedModel(model))


@router.delete(
    "/model-entries/{name}",
    tags=["models"],
    status_code=204,
    errors=[404],
    summary="Delete a stored model",
)
async def delete_model(
    audit: deps.AuditDep,
    model_registry: deps.ModelRegistryDep,
    request_user: deps.AdminUser,
    name: api.PathId,
) -> None:
    """Delete a stored model with its key. Chats that use it need another model."""
    await model_registry.delete_model(name)
    await audit.record_change(request_user, "model.delete", name)


@router.post(
    "/model-entries/{name:path}/test",
    tags=["models"],
    errors=[404, 502],
    summary="Test a model",
)
async def test_model(
    audit: deps.AuditDep,
    model_registry: deps.ModelRegistryDep,
    request_user: deps.AdminUser,
    name: api.PathId,
) -> ModelTestResponse:
    """Send a short request to the model, which may cost a fraction of a cent, and return its answer."""
    await audit.record_change(request_user, "model.test", name)
    answer = await model_registry.test_model(name)
    return ModelTestResponse(seconds=round(answer.seconds, 3), answer=answer.text)


def _build_response(listed: ListedModel) -> ModelEntryResponse:
    return ModelEntryResponse(
        **output_values(listed.record, is_admin=True),
        origin=listed.origin,
        overridden=listed.overridden,
        problem=listed.problem,
    )
