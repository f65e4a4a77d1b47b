"""Models that admins add in the web app, declared as the records of ``types.registry`` are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum

from toolyard.types.account import Principal
from toolyard.types.registry import Audience, TextRule, spec

__all__ = ["LOCAL_PROVIDER", "ModelAudience", "ModelDraft", "StoredModel"]

LOCAL_PROVIDER = "local"
"""Provider of the model that runs on this machine, beside those of the table of providers."""


class ModelAudience(StrEnum):
    """People who may use a model."""

    EVERYONE = "everyone"
    ADMINS = "admins"
    PEOPLE = "people"
    """The people in ``StoredModel.people``."""


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """Unvalidated input for a model."""

    name: str = field(
        default="",
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.MODEL_NAME,
            example="fast",
            description="Name by which chats and agents refer to the model; it cannot be changed. If empty,"
            " it is derived from `model`.",
            label="Short name",
            help="Agents and commands refer to the model by it. It cannot be changed later. Leave empty to"
            " derive it from the model.",
        ),
    )
    provider: str = field(
        default="",
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.MODEL_NAME,
            not_empty=True,
            example="openai",
            description="A provider that the documentation lists, or `local` for the model on this machine.",
            label="Provider",
        ),
    )
    model: str = field(
        default="",
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.PROVIDER_MODEL,
            example="gpt-5-mini",
            description="The provider's name of the model; empty for `local`.",
            label="Model",
            help="As the provider writes it, such as gpt-5-mini.",
        ),
    )
    label: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.NAME,
            label="Display name",
            help="Shown where people choose a model. Leave empty to show the short name, such as gpt-5-mini.",
        ),
    )
    base_url: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.URL,
            description="Custom address with the provider's API; null for the provider's own.",
            example="https://models.example.com/v1",
            label="Address",
            help="The URL of the API; it usually ends with /v1.",
            error_hint="write it like https://models.example.com/v1",
        ),
    )
    private_addresses: bool = field(
        default=False,
        metadata=spec(
            shown_to=Audience.USERS,
            description="Whether `base_url` may be a private network address.",
            label="Allow private network addresses",
            help="For a model on this machine or in your own network.",
        ),
    )
    api_key: str | None = field(
        default=None,
        repr=False,
        metadata=spec(
            shown_to=Audience.USERS,
            secret=True,
            rule=TextRule.CREDENTIAL,
            description="API key, never returned. Null keeps the stored one, an empty string removes it.",
            label="API key",
            help="Stored encrypted, sent only to this address, never shown again. Leave empty if the endpoint"
            " needs none.",
        ),
    )
    """None keeps the stored key, an empty one removes it."""
    key_variable: str | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.VARIABLE,
            description="Environment variable of the server with the key: one of the provider's own, or one"
            " that begins with `TOOLYARD_MODEL_KEY_`.",
            label="Variable with the key",
            help="An environment variable of the server, used instead of a stored key.",
        ),
    )
    audience: str = field(default="everyone", metadata=spec(shown_to=Audience.USERS, label="Who may use it"))
    people: tuple[str, ...] = field(
        default=(),
        metadata=spec(
            shown_to=Audience.USERS,
            rule=TextRule.USER_ID,
            max_entries=1_000,
            description="Ids of the people who may use it, if `audience` is `people`.",
            label="People",
            help="One name per line.",
        ),
    )
    input_price: float | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            description="US dollars per million input tokens; null for the price list.",
            label="Input price",
            help="US dollars per million tokens. Leave empty to use the built-in price list.",
        ),
    )
    output_price: float | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            description="US dollars per million output tokens; null for the price list.",
            label="Output price",
            help="US dollars per million tokens.",
        ),
    )
    sees: bool | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            description="Whether images may be sent to it; null: as known for the model.",
            label="Accepts images",
        ),
    )
    hears: bool | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            description="Whether audio may be sent to it; null: as known for the model.",
            label="Accepts audio",
        ),
    )
    temperature: float | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            label="Temperature",
            help="Used if neither the agent nor the chat sets one.",
        ),
    )
    context: int | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            description="Size of the context window in tokens; null: as known for the model.",
            label="Context size",
            help="In tokens. Leave empty to use the known size.",
        ),
    )
    is_default: bool | None = field(
        default=None,
        metadata=spec(
            shown_to=Audience.USERS,
            description="Whether new chats use it. At most one model is the default; null keeps the value.",
        ),
    )


@dataclass(frozen=True, slots=True)
class StoredModel(ModelDraft):
    """A model of the database. ``revision`` counts its changes."""

    name: str = field()
    provider: str = field()
    audience: ModelAudience = ModelAudience.EVERYONE
    is_default: bool = False
    revision: int = field(default=1, metadata=spec(shown_to=Audience.USERS))
    created_at: float = field(default=0.0, metadata=spec(shown_to=Audience.USERS))
    updated_at: float = field(default=0.0, metadata=spec(shown_to=Audience.USERS))

    @property
    def title(self) -> str:
        """Name that people see."""
        return self.label or self.name

    def permits(self, principal: Principal) -> bool:
        """Return whether this person may use the model."""
        if self.audience is ModelAudience.ADMINS:
            return principal.admin
        return self.audience is ModelAudience.EVERYONE or principal.id in self.people

    def to_draft(self) -> ModelDraft:
        """Return the input that changes nothing. It has no key, so that the stored one is kept."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(ModelDraft)}
        values["api_key"] = None
        return ModelDraft(**values)
