"""The configured models, and the way to send requests to one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolyard.agents.models.errors import ModelError, NoSuchModel
from toolyard.agents.models.library_loader import LibraryLoader
from toolyard.agents.models.local_model import LOCAL_MODEL_ID, LocalModel
from toolyard.agents.models.model_ref import (
    ModelChoice,
    ModelRef,
    ModelRequest,
    ProviderAccess,
    can_take_audio,
    can_take_images,
)
from toolyard.agents.models.model_request import ModelStreamContext
from toolyard.agents.models.providers import ProviderClients
from toolyard.config.settings.model_providers import MODEL_PROVIDERS
from toolyard.config.settings.models import ModelEntry, model_ref_fault
from toolyard.config.settings.table import Settings
from toolyard.config.suggestions import did_you_mean
from toolyard.config.value_checks import mask_user_info
from toolyard.tracing.tracer import NO_TRACER, Attributes, Span, Tracer, describe_address

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

    from toolyard.agents.models.response_stream import ModelStream

__all__ = ["Models", "PickedModel"]

_DEFAULT_CONTEXT_TOKENS, _SELF_HOSTED_CONTEXT_TOKENS, _LOCAL_CONTEXT_TOKENS = 128_000, 32_000, 8_000
"""Context windows assumed if unknown: of a provider's model, a self-hosted one, and the local one."""
_SETUP_HINT = "set model, for example to openai:gpt-5-mini, and the API key of its provider"


@dataclass(frozen=True, slots=True)
class PickedModel:
    """A selected model, ready for requests."""

    choice: ModelChoice
    model_name: str
    """The provider's name of the model."""
    get_model: Callable[[], Awaitable[tuple[Model, ModelRef]]]
    """Creates the client of the model."""
    _silence_timeout: float
    _tracer: Tracer
    _temperature: float | None = None
    _context_tokens: int | None = None

    async def get_context_window(self) -> int:
        """Return the context window in tokens: configured, known, or else assumed. Raises a ModelError."""
        if self._context_tokens is not None:
            return self._context_tokens
        model, model_ref = await self.get_model()
        # A self-hosted server's window is set when it is started, whatever the model supports.
        is_self_hosted = model_ref.access.definition.self_hosted or model_ref.access.base_url is not None
        return (
            _SELF_HOSTED_CONTEXT_TOKENS if is_self_hosted else model.context_window or _DEFAULT_CONTEXT_TOKENS
        )

    @asynccontextmanager
    async def stream(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition],
        *,
        instructions: str | None,
        temperature: float | None,
        max_tokens: int | None = None,
    ) -> AsyncGenerator[ModelStream]:
        """Send a request. Entering the context and iterating its stream raise only ModelErrors."""
        effective_temperature = self._temperature if temperature is None else temperature
        request = ModelRequest(messages, tools, instructions, effective_temperature, max_tokens)
        with self._start_span(request) as span:
            async with ModelStreamContext(self.get_model, request, self._silence_timeout) as stream:
                yield stream
                if self._tracer.is_on:
                    span.set(stream.describe(request if self._tracer.captures_content else None))

    def _start_span(self, request: ModelRequest) -> Span:
        choice = self.choice
        definition = MODEL_PROVIDERS.get(choice.provider)
        url = choice.base_url or (None if definition is None else definition.base_url)
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": (definition and definition.telemetry_name) or choice.provider,
            "gen_ai.request.model": self.model_name,
            "gen_ai.request.stream": True,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.max_tokens": request.max_tokens,
            **({} if url is None else describe_address(url)),
        }
        return self._tracer.span(f"chat {self.model_name}", "client", attributes)


class Models:
    """All models of this process. Nothing is imported, opened or started before the first request."""

    def __init__(
        self,
        entries: Sequence[ModelEntry],
        accesses: Sequence[ProviderAccess] = (),
        *,
        default: str | None = None,
        local: LocalModel | None = None,
        silence_timeout: float = 120.0,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """``accesses`` is how to reach each provider for models without an entry."""
        self._entries = {entry.name: entry for entry in entries}
        self._accesses = {access.provider: access for access in accesses}
        self._local = None if local is None or LOCAL_MODEL_ID in self._entries else local
        self.tracer = tracer
        """Tracer of turns and model requests."""
        self.loader = LibraryLoader()
        self._provider_clients = ProviderClients(silence_timeout, self.loader)
        self._silence_timeout = silence_timeout
        self.choices: Sequence[ModelChoice] = (
            *(self._build_choice(entry) for entry in entries),
            *(() if self._local is None else (self._local.choice,)),
        )
        """Models for a picker; empty if none is configured."""
        self.default: str | None = default or next((choice.id for choice in self.choices), None)

    @classmethod
    def from_settings(cls, settings: Settings, tracer: Tracer = NO_TRACER) -> Models:
        """Return the models of these settings."""
        entries = list(settings.models)
        if settings.model is not None and model_ref_fault(settings.model) is None:
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
            _provider_accesses(settings),
            default=settings.model,
            local=LocalModel.discover(settings.local_model),
            silence_timeout=settings.model_silence,
            tracer=tracer,
        )

    def pick(self, model_id: str | None) -> PickedModel:
        """Return the model with this id or ``provider:name``; None selects the default.

        Raises NoSuchModel.
        """
        model_id = model_id or self.default
        if model_id is None:
            raise NoSuchModel("no model is configured", hint=_SETUP_HINT)
        if model_id == LOCAL_MODEL_ID and self._local is not None:
            return self._pick_local(self._local)
        entry = self._entries.get(model_id) or self._entry_for_unlisted(model_id)
        model_ref = ModelRef(self._resolve_access(entry), entry.model.partition(":")[2])

        async def get_model() -> tuple[Model, ModelRef]:
            return await self._provider_clients.get_model(model_ref), model_ref

        return PickedModel(
            self._build_choice(entry),
            model_ref.name,
            get_model,
            self._silence_timeout,
            self.tracer,
            entry.temperature,
            entry.context,
        )

    async def preload(self, model_id: str | None = None) -> None:
        """Load the libraries of this model or the default, without sending a request or starting a server.

        Errors are suppressed here; the first request reports them.
        """
        with suppress(ModelError):
            if (model_id or self.default) == LOCAL_MODEL_ID and self._local is not None:
                await self._provider_clients.load_openai_compatible()
            else:
                await self.pick(model_id).get_model()

    async def close(self) -> None:
        """Stop loading, close connections, and stop the local model's server. Takes bounded time."""
        self.loader.stop()
        await self._provider_clients.close()
        if self._local is not None:
            await self._local.close()

    def _pick_local(self, local: LocalModel) -> PickedModel:
        async def get_model() -> tuple[Model, ModelRef]:
            model_ref = ModelRef(await local.ensure_running(), LOCAL_MODEL_ID)
            return await self._provider_clients.get_model(model_ref), model_ref

        return PickedModel(
            local.choice,
            LOCAL_MODEL_ID,
            get_model,
            self._silence_timeout,
            self.tracer,
            _context_tokens=_LOCAL_CONTEXT_TOKENS,
        )

    def _entry_for_unlisted(self, model_id: str) -> ModelEntry:
        """Return an entry for a model that is not configured, if its provider is."""
        fault = model_ref_fault(model_id)
        known = [choice.id for choice in self.choices]
        if fault is not None:
            hint = did_you_mean(model_id, known) or _SETUP_HINT
            raise NoSuchModel(f"unknown model '{model_id}': it is not listed, and {fault}", hint=hint)
        entry = ModelEntry(model_id, model_id)
        access = self._resolve_access(entry)
        if access.lacks_key:
            hint = f"set {access.key_variable}"
            raise NoSuchModel(
                f"model '{model_id}' cannot be used: no API key is set for its provider", hint=hint
            )
        return entry

    def _resolve_access(self, entry: ModelEntry) -> ProviderAccess:
        provider = entry.model.partition(":")[0]
        default_access = self._accesses.get(provider, ProviderAccess(provider))
        access = ProviderAccess(
            provider, _non_default_url(provider, entry.base_url or default_access.url), entry.api_key
        )
        # A provider's key is sent only to the address for which it was set.
        if access.api_key is None and access.base_url == default_access.base_url:
            return default_access
        return access

    def _build_choice(self, entry: ModelEntry) -> ModelChoice:
        provider, _, name = entry.model.partition(":")
        access = self._resolve_access(entry)
        url, takes_audio = access.base_url, access.compatible or access.definition.takes_audio
        return ModelChoice(
            id=entry.name,
            label=entry.label or entry.name,
            provider=provider,
            sees=can_take_images(name) if entry.sees is None else entry.sees,
            hears=(takes_audio and can_take_audio(name)) if entry.hears is None else entry.hears,
            base_url=None if url is None else mask_user_info(url),
        )


def _provider_accesses(settings: Settings) -> Sequence[ProviderAccess]:
    """Return how to reach each provider: by the setting ``model`` for its own provider, else by the usual
    keys.
    """
    accesses = {provider: settings.get_provider_access(provider) for provider in MODEL_PROVIDERS}
    provider = (settings.model or "").partition(":")[0]
    if provider in accesses and settings.model_base_url is not None:
        accesses[provider] = (settings.model_base_url, settings.model_api_key)
    elif provider in accesses and settings.model_api_key is not None:
        accesses[provider] = (accesses[provider][0], settings.model_api_key)
    return tuple(
        ProviderAccess(each, _non_default_url(each, url), key) for each, (url, key) in accesses.items()
    )


def _non_default_url(provider: str, url: str | None) -> str | None:
    """Return the URL unless it is the provider's own."""
    return None if url == MODEL_PROVIDERS[provider].base_url else url
