"""The models that a person can pick, and the way to ask one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolyard.agents.models.errors import ModelError, NoSuchModel
from toolyard.agents.models.library_loader import Loading
from toolyard.agents.models.local_model import LOCAL, LocalModel
from toolyard.agents.models.model_choice import ModelChoice, hears, sees
from toolyard.agents.models.model_ref import OWN, VARIABLES, Access, Asked
from toolyard.agents.models.model_request import Opening, Question
from toolyard.agents.models.providers import Clients
from toolyard.config.settings.models import ModelEntry, provider_fault
from toolyard.config.settings.table import Settings
from toolyard.config.suggestions import did_you_mean
from toolyard.config.value_checks import without_user

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

    from toolyard.agents.models.response_stream import ModelStream

__all__ = ["Models", "PickedModel"]

_GUESS, _GUESS_OWN, _GUESS_LOCAL = 128_000, 32_000, 8_000
"""Tokens that a model takes at once, where it is not known: a provider's, one at an address of one's own, and
the small one in our own process."""
_SETUP = "name one in the setting model, for example openai:gpt-5-mini, and set its provider's key"


@dataclass(frozen=True, slots=True)
class PickedModel:
    """A model that can be asked."""

    choice: ModelChoice
    ready: Callable[[], Awaitable[tuple[Model, Asked]]]
    """Makes what asks it."""
    _silence: float
    _temperature: float | None = None
    _context: int | None = None

    async def window(self) -> int:
        """How many tokens it takes at once: as was set, as is known, or else a guess. Raises a ModelError."""
        if self._context is not None:
            return self._context
        model, asked = await self.ready()
        # What a server of one's own takes is set where it is started, whatever the model could.
        own = self.choice.provider == "ollama" or asked.access.base_url is not None
        return _GUESS_OWN if own else model.context_window or _GUESS

    def stream(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition],
        *,
        instructions: str | None,
        temperature: float | None,
    ) -> AbstractAsyncContextManager[ModelStream]:
        """Ask. Entering it and iterating what it gives raise ModelErrors, and nothing else."""
        warmth = self._temperature if temperature is None else temperature
        return Opening(self.ready, Question(messages, tools, instructions, warmth), self._silence)


class Models:
    """Every model of this process. Nothing is imported, opened or started before one is asked."""

    def __init__(
        self,
        entries: Sequence[ModelEntry],
        accesses: Sequence[Access] = (),
        *,
        default: str | None = None,
        local: LocalModel | None = None,
        silence: float = 120.0,
    ) -> None:
        """``accesses``: how each provider is reached by models that no entry names."""
        self._entries = {entry.name: entry for entry in entries}
        self._accesses = {access.provider: access for access in accesses}
        self._local = None if local is None or LOCAL in self._entries else local
        self.loading = Loading()
        self._clients = Clients(silence, self.loading)
        self._silence = silence
        self.choices: Sequence[ModelChoice] = (
            *(self._choice(entry) for entry in entries),
            *(() if self._local is None else (self._local.choice,)),
        )
        """What a picker shows. Empty: there is no model."""
        self.default: str | None = default or next((choice.id for choice in self.choices), None)

    @classmethod
    def of(cls, settings: Settings) -> Models:
        """The models that the settings name."""
        entries = list(settings.models)
        if settings.model is not None and provider_fault(settings.model) is None:
            entries.insert(
                0,
                ModelEntry(
                    settings.model,
                    settings.model,
                    settings.model_base_url,
                    settings.model_api_key,
                    context=settings.model_context,
                ),
            )
        return cls(
            entries,
            _accesses(settings),
            default=settings.model,
            local=LocalModel.found(settings.local_model),
            silence=settings.model_silence,
        )

    def pick(self, wanted: str | None) -> PickedModel:
        """The model of this id, or ``provider:name``; None: the default. Raises NoSuchModel."""
        wanted = wanted or self.default
        if wanted is None:
            raise NoSuchModel("no model is configured", hint=_SETUP)
        if wanted == LOCAL and self._local is not None:
            return self._pick_local(self._local)
        entry = self._entries.get(wanted) or self._unlisted(wanted)
        asked = Asked(self._access(entry), entry.model.partition(":")[2])

        async def ready() -> tuple[Model, Asked]:
            return await self._clients.model(asked), asked

        choice = self._choice(entry)
        return PickedModel(choice, ready, self._silence, entry.temperature, entry.context)

    async def warm(self, wanted: str | None = None) -> None:
        """Load what this model, or the default, is asked with. Nobody is asked and nothing is started. What
        is wrong is told to whoever asks."""
        with suppress(ModelError):
            if (wanted or self.default) == LOCAL and self._local is not None:
                await self._clients.load_compatible()
            else:
                await self.pick(wanted).ready()

    async def close(self) -> None:
        """Stop loading, close connections, and the local model's server. Bounded."""
        self.loading.stop()
        await self._clients.close()
        if self._local is not None:
            await self._local.close()

    def _pick_local(self, local: LocalModel) -> PickedModel:
        async def ready() -> tuple[Model, Asked]:
            asked = Asked(await local.access(), LOCAL)
            return await self._clients.model(asked), asked

        return PickedModel(local.choice, ready, self._silence, _context=_GUESS_LOCAL)

    def _unlisted(self, wanted: str) -> ModelEntry:
        """A model of a provider that needs no entry, because its provider can be reached."""
        fault = provider_fault(wanted)
        known = [choice.id for choice in self.choices]
        if fault is not None:
            hint = did_you_mean(wanted, known) or _SETUP
            raise NoSuchModel(f"there is no model '{wanted}': it is not listed, and {fault}", hint=hint)
        entry = ModelEntry(wanted, wanted)
        access = self._access(entry)
        if access.lacks_key:
            hint = f"set {VARIABLES[access.provider]}"
            raise NoSuchModel(f"there is no model '{wanted}': no key is set for its provider", hint=hint)
        return entry

    def _access(self, entry: ModelEntry) -> Access:
        provider = entry.model.partition(":")[0]
        usual = self._accesses.get(provider, Access(provider))
        access = Access(provider, _other(provider, entry.base_url or usual.url), entry.api_key)
        # A provider's key goes to the address that it was set for, and to no other.
        if access.api_key is None and access.base_url == usual.base_url:
            return usual
        return access

    def _choice(self, entry: ModelEntry) -> ModelChoice:
        provider, _, name = entry.model.partition(":")
        url = self._access(entry).base_url
        # The Responses protocol takes no sounds, whatever the model.
        deaf = provider == "openai-responses" or (provider == "openai" and url is None)
        return ModelChoice(
            id=entry.name,
            label=entry.label or entry.name,
            provider=provider,
            sees=sees(name) if entry.sees is None else entry.sees,
            hears=(not deaf and hears(name)) if entry.hears is None else entry.hears,
            base_url=None if url is None else without_user(url),
        )


def _accesses(settings: Settings) -> Sequence[Access]:
    """How each provider is reached: as the setting ``model`` has it for its own, else by the usual keys."""
    usual = {
        "openai": (settings.openai_base_url, settings.openai_api_key),
        "openai-responses": (settings.openai_base_url, settings.openai_api_key),
        "anthropic": (settings.anthropic_base_url, settings.anthropic_api_key),
        "google": (None, settings.google_api_key),
        "ollama": (None, None),
    }
    provider = (settings.model or "").partition(":")[0]
    if provider in usual and settings.model_base_url is not None:
        usual[provider] = (settings.model_base_url, settings.model_api_key)
    elif provider in usual and settings.model_api_key is not None:
        usual[provider] = (usual[provider][0], settings.model_api_key)
    return tuple(Access(each, _other(each, url), key) for each, (url, key) in usual.items())


def _other(provider: str, url: str | None) -> str | None:
    """An address that is not the provider's own."""
    return None if url == OWN[provider] else url
