"""``/models``: the models available to chats."""

from __future__ import annotations

from fastapi import Depends
from pydantic import BaseModel, Field

from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    ApiModel,
    ChatReader,
    problem_responses,
    require_media_types,
)
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import ChatsDep

__all__ = ["router"]

router = Routes(tags=["chats"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])


class ModelResponse(ApiModel, schema="ModelShown"):
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


@router.get("/models", responses=problem_responses(), summary="List models")
async def list_models(chats: ChatsDep, request_user: ChatReader) -> ModelList:
    """Return the models that chats can use, in the order of the settings."""
    models = chats.models
    items = [
        ModelResponse(id=each.id, label=each.label, provider=each.provider, sees=each.sees, hears=each.hears)
        for each in models.choices
    ]
    return ModelList(items=items, default=models.default)
