"""``/models``: what chats can talk to."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from toolyard.web.api.chat_dependencies import ChatReader
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AppServices,
    problem_responses,
    require_media_types,
)

__all__ = ["router"]

router = APIRouter(tags=["chats"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])


class ModelShown(BaseModel):
    """A model. Its key and its address are the operator's business."""

    id: str = Field(description="What a chat names it by.", examples=["fast"])
    label: str
    provider: str = Field(examples=["openai"])
    sees: bool = Field(description="Whether pictures in results reach it.")
    hears: bool = Field(description="Whether sounds in results reach it.")


class ModelList(BaseModel):
    """The models that the settings name."""

    items: list[ModelShown] = Field(description="Empty: chats run tools only.")
    default: str | None


@router.get("/models", responses=problem_responses(), summary="The models that chats can use")
async def list_models(site: AppServices, visitor: ChatReader) -> ModelList:
    """In the order of the settings."""
    models = site.chats.models
    items = [
        ModelShown(id=each.id, label=each.label, provider=each.provider, sees=each.sees, hears=each.hears)
        for each in models.choices
    ]
    return ModelList(items=items, default=models.default)
