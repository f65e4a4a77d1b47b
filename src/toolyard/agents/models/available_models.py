"""The models of files, variables and the database, and the way to send requests to one.

Files and variables win: a stored model of the same name is not used.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolyard.agents.models.errors import KeyRefused, ModelError, ModelFailed, ModelSilent, NoSuchModel
from toolyard.agents.models.library_loader import LibraryLoader
from toolyard.agents.models.local_model import LOCAL_INSTALL_HINT, LOCAL_MODEL_ID, LocalModel
from toolyard.agents.models.model_ref import (
    ModelChoice,
    ModelRef,
    ModelRequest,
    ProviderAccess,
    TokenPrices,
    can_take_audio,
    can_take_images,
)
from toolyard.agents.models.model_stream_context import ModelStreamContext
from toolyard.agents.models.provider_clients import ProviderClients
from toolyard.config.settings.model_entries import MODEL_PROVIDERS, ModelEntry, model_ref_fault
from toolyard.config.settings.table import Settings
from toolyard.config.suggestions import did_you_mean
from toolyard.config.value_checks import mask_user_info
from toolyard.net import AddressGuard
from toolyard.tracing.tracer import NO_TRACER, Attributes, Span, Tracer, describe_address
from toolyard.transports.transport import to_single_line
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.stored_model import LOCAL_PROVIDER, StoredModel

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

    from toolyard.agents.models.model_stream import ModelStream

__all__ = ["ListedModel", "ModelTestAnswer", "Models", "PickedModel"]

_DEFAULT_CONTEXT_TOKENS, _SELF_HOSTED_CONTEXT_TOKENS, _LOCAL_CONTEXT_TOKENS = 128_000, 32_000, 8_000
"""Context windows assumed if unknown: of a provider's model, a self-hosted one, and the local one."""
_SETUP_HINT = "add one on the Models page; or set model, for example to openai:gpt-5-mini, and an API key"
_TEST_PROMPT, _TEST_TOKENS = "Reply with the word OK.", 256
_MAX_TEST_ANSWER_CHARACTERS = 200


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
    _prices: TokenPrices | None = None

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
            context = ModelStreamContext(self.get_model, request, self._silence_timeout, self._prices)
            async with context as stream:
                yield stream
                if self._tracer.captures_content:
                    span.set(stream.describe(request, tuple(self._tracer.list_secrets())))
                elif self._tracer.is_on:
                    span.set(stream.describe(None))

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


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model as admins see it, wherever it comes from."""

    record: StoredModel
    """Its values; those of a file or variable in the form of a stored model, without the key."""
    origin: str | None = None
    """File, line or variable that it comes from; None for a stored model."""
    overridden: bool = False
    """True if a file or variable has a model of the same name, which is used instead."""
    problem: str | None = None
    """Why it cannot be used at the moment."""


@dataclass(frozen=True, slots=True)
class ModelTestAnswer:
    """Answer of a model to a short test request."""

    seconds: float
    text: str


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
        guard: AddressGuard = AddressGuard(),  # noqa: B008 - frozen
        origins: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """``accesses`` is how to reach each provider for models without an entry.

        ``origins`` are those of the settings. ``env`` has the keys that stored models name.
        """
        self._configured = {entry.name: entry for entry in entries}
        self._accesses = {access.provider: access for access in accesses}
        self.local = None if local is None or LOCAL_MODEL_ID in self._configured else local
        self._default = default
        self._origins = origins or {}
        self._env = os.environ if env is None else env
        self._stored: dict[str, StoredModel] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when a person may have got a first model, or lost the last one."""
        self.tracer = tracer
        """Tracer of turns and model requests."""
        self.loader = LibraryLoader()
        self._guard = guard
        self.provider_clients = ProviderClients(silence_timeout, self.loader, guard)
        self._silence_timeout = silence_timeout

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
            guard=AddressGuard.from_settings(settings.guard_allow, settings.guard_deny),
            origins=settings.origins,
        )

    @property
    def default_origin(self) -> str | None:
        """File or variable that sets the default instead of the database; None if none does."""
        return None if self._default is None else self._origins.get("model", "settings")

    async def set_stored(self, models: Iterable[StoredModel]) -> None:
        """Use these models of the database from now on.

        Requests that use a key or address of a changed or deleted model fail.
        """
        former = self._stored_accesses()
        self._stored = {each.name: each for each in models}
        self.on_change()
        await self.provider_clients.close_accesses(former - self._stored_accesses())

    def choices_for(self, principal: Principal) -> Sequence[ModelChoice]:
        """Return the models that this person may use, for a picker."""
        return (
            *(self._build_choice(entry) for entry in self._configured.values()),
            *(self._build_stored_choice(each) for each in self._usable() if each.permits(principal)),
            *(() if self.local is None or self._has_local_row() else (self.local.choice,)),
        )

    def default_for(self, principal: Principal) -> str | None:
        """Return the id of the model that this person's chats use if none is chosen."""
        if self._default is not None and self._default not in self._stored:
            return self._default
        ids = [choice.id for choice in self.choices_for(principal)]
        stored = next((each.name for each in self._usable() if each.is_default), None)
        return next((each for each in (self._default, stored) if each in ids), next(iter(ids), None))

    def list_all(self) -> Sequence[ListedModel]:
        """Return all models for admins: those of files and variables, of the database, and the local one."""
        listed = [
            ListedModel(_to_record(entry), self._find_origin(name))
            for name, entry in self._configured.items()
        ]
        listed += [
            ListedModel(each, overridden=each.name in self._configured, problem=self._find_problem(each))
            for each in self._stored.values()
        ]
        if self.local is not None and not self._has_local_row():
            record = StoredModel(LOCAL_MODEL_ID, LOCAL_PROVIDER, label=self.local.choice.label)
            listed.append(ListedModel(record, self._origins.get("local_model", "installed package")))
        return listed

    def find_title(self, model_id: str, principal: Principal | None = None) -> str:
        """Return the name of a model that people see; the id itself of one that is not listed.

        With a principal, a model that this person may not use counts as not listed.
        """
        listed = (each.record for each in self.list_all() if not each.overridden)
        records = (each for each in listed if principal is None or each.permits(principal))
        return next((each.title for each in records if each.name == model_id), model_id)

    def _find_origin(self, name: str) -> str:
        # Only the entry that the setting ``model`` makes has a colon in its name.
        keys = ("model",) if ":" in name else (f"models.{name}", "models")
        return next((self._origins[key] for key in keys if key in self._origins), "settings")

    def lacks_key(self, model: StoredModel) -> bool:
        """Return whether the provider needs a key, and neither the model nor the settings have one."""
        return model.provider in MODEL_PROVIDERS and self._stored_access(model).lacks_key

    def pick(self, model_id: str | None, principal: Principal) -> PickedModel:
        """Return the model with this id or ``provider:name``; None selects the default.

        Raises NoSuchModel, also if this person may not use it.
        """
        model_id = model_id or self.default_for(principal)
        if model_id is None:
            raise NoSuchModel("no model is configured", hint=_SETUP_HINT)
        if model_id in self._configured:
            return self._pick_entry(self._configured[model_id])
        for stored in self._usable():
            if stored.name == model_id and stored.permits(principal):
                return self._pick_stored(stored)
        if model_id == LOCAL_MODEL_ID and self.local is not None and not self._has_local_row():
            return self._pick_local(self.local.choice)
        return self._pick_entry(self._entry_for_unlisted(model_id, principal))

    async def test(self, model: StoredModel | str, *, timeout: float = 30.0) -> ModelTestAnswer:
        """Send a short request, and return the answer. Raises ModelError.

        ``model`` is one that need not be stored, or the name of a listed one. Connections are not kept.
        """
        clients = ProviderClients(timeout, self.loader, self._guard)
        try:
            picked = replace(self._pick_for_test(model, clients), _silence_timeout=timeout)
            async with asyncio.timeout(2 * timeout):
                return await _ask_briefly(picked, self.loader)
        except TimeoutError:
            raise ModelSilent(f"no answer within {2 * timeout:g} s", hint="try again") from None
        finally:
            await clients.close()

    def _pick_for_test(self, model: StoredModel | str, clients: ProviderClients) -> PickedModel:
        if isinstance(model, str):
            if model in self._configured:
                return self._pick_entry(self._configured[model], clients)
            if model not in self._stored and self.local is not None:
                return self._pick_local(self.local.choice, clients)
            model = self._stored[model]
        if model.provider not in (*MODEL_PROVIDERS, LOCAL_PROVIDER):
            raise NoSuchModel(f"{self._find_problem(model)}", hint="update Toolyard, or delete the model")
        return self._pick_stored(model, clients)

    async def preload(self, model_id: str | None = None) -> None:
        """Load the libraries of this model or the default, without sending a request or starting a server.

        Errors are suppressed here; the first request reports them.
        """
        with suppress(ModelError):
            picked = self.pick(model_id, LOCAL_PRINCIPAL)
            if picked.choice.provider == LOCAL_PROVIDER:
                await self.provider_clients.load_openai_compatible()
            else:
                await picked.get_model()

    async def close(self) -> None:
        """Stop loading, close connections, and stop the local model's server. Takes bounded time."""
        self.loader.stop()
        await self.provider_clients.close()
        if self.local is not None:
            await self.local.close()

    # Models of files and variables.

    def _pick_entry(
        self, entry: ModelEntry, clients: ProviderClients | None = None, access: ProviderAccess | None = None
    ) -> PickedModel:
        model_ref = ModelRef(access or self._resolve_access(entry), entry.model.partition(":")[2])
        provider_clients = clients or self.provider_clients

        async def get_model() -> tuple[Model, ModelRef]:
            return await provider_clients.get_model(model_ref), model_ref

        return PickedModel(
            self._build_choice(entry, access),
            model_ref.name,
            get_model,
            self._silence_timeout,
            self.tracer,
            entry.temperature,
            entry.context,
            _find_prices(entry),
        )

    def _entry_for_unlisted(self, model_id: str, principal: Principal) -> ModelEntry:
        """Return an entry for a model that is not configured, if its provider is."""
        fault = model_ref_fault(model_id)
        known = [choice.id for choice in self.choices_for(principal)]
        if fault is not None:
            hint = did_you_mean(model_id, known) or _SETUP_HINT
            raise NoSuchModel(f"unknown model '{model_id}': it is not listed, and {fault}", hint=hint)
        # The provider's key of the settings must not be a way around the audience of a stored model.
        target = _model_identity(*model_id.split(":", 1))
        rows = [each for each in self._usable() if _model_identity(each.provider, each.model) == target]
        if rows and not any(each.permits(principal) for each in rows):
            hint = did_you_mean(model_id, known) or _SETUP_HINT
            raise NoSuchModel(f"unknown model '{model_id}'", hint=hint)
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

    def _build_choice(self, entry: ModelEntry, access: ProviderAccess | None = None) -> ModelChoice:
        provider, _, name = entry.model.partition(":")
        access = access or self._resolve_access(entry)
        url, takes_audio = access.base_url, access.compatible or access.definition.takes_audio
        return ModelChoice(
            id=entry.name,
            label=entry.label or entry.name,
            provider=provider,
            sees=can_take_images(name) if entry.sees is None else entry.sees,
            hears=(takes_audio and can_take_audio(name)) if entry.hears is None else entry.hears,
            base_url=None if url is None else mask_user_info(url),
        )

    # Models of the database.

    def _usable(self) -> list[StoredModel]:
        """Return the stored models that no file or variable overrides, and whose provider is known."""
        return [
            each
            for each in self._stored.values()
            if each.name not in self._configured and each.provider in (*MODEL_PROVIDERS, LOCAL_PROVIDER)
        ]

    def _has_local_row(self) -> bool:
        """Return whether a stored model replaces the local one, which then is not listed by itself."""
        return any(LOCAL_PROVIDER in (each.provider, each.name) for each in self._usable())

    def _stored_accesses(self) -> set[ProviderAccess]:
        return {self._stored_access(each) for each in self._usable() if each.provider in MODEL_PROVIDERS}

    def _stored_access(self, model: StoredModel) -> ProviderAccess:
        key = self._env.get(model.key_variable) if model.key_variable else model.api_key
        access = self._resolve_access(_to_entry(model, key))
        if key is None and not model.key_variable and access.api_key is not None:
            return access
        is_guarded = model.base_url is not None and not model.private_addresses
        return replace(access, api_key=key, stored=True, guarded=is_guarded)

    def _build_stored_choice(self, model: StoredModel) -> ModelChoice:
        if model.provider != LOCAL_PROVIDER:
            return self._build_choice(_to_entry(model, None), self._stored_access(model))
        label = model.title
        return ModelChoice(
            model.name, label, LOCAL_PROVIDER, sees=bool(model.sees), hears=bool(model.hears), base_url=None
        )

    def _pick_stored(self, model: StoredModel, clients: ProviderClients | None = None) -> PickedModel:
        if model.provider == LOCAL_PROVIDER:
            return replace(
                self._pick_local(self._build_stored_choice(model), clients),
                _temperature=model.temperature,
                _context_tokens=model.context or _LOCAL_CONTEXT_TOKENS,
                _prices=_find_prices(model),
            )
        access = self._stored_access(model)
        picked = self._pick_entry(_to_entry(model, access.api_key), clients, access)
        problem = self._find_problem(model)
        if problem is None:
            return picked

        async def refuse() -> tuple[Model, ModelRef]:
            hint = "set it where Toolyard runs and restart Toolyard, or enter a key"
            raise KeyRefused(problem, hint=hint)

        return replace(picked, get_model=refuse)

    def _find_problem(self, model: StoredModel) -> str | None:
        """Return why a stored model cannot be used at the moment."""
        if model.provider == LOCAL_PROVIDER:
            return (
                None if self.local is not None else f"the local model is not installed; {LOCAL_INSTALL_HINT}"
            )
        if model.provider not in MODEL_PROVIDERS:
            return f"the provider '{model.provider}' is not known to this version of Toolyard"
        if model.key_variable and not self._env.get(model.key_variable):
            return f"the variable {model.key_variable} is not set"
        return None

    # The local model.

    def _pick_local(self, choice: ModelChoice, clients: ProviderClients | None = None) -> PickedModel:
        provider_clients = clients or self.provider_clients

        async def get_model() -> tuple[Model, ModelRef]:
            if self.local is None:
                raise ModelFailed("the local model is not installed", hint=LOCAL_INSTALL_HINT)
            model_ref = ModelRef(await self.local.ensure_running(), LOCAL_MODEL_ID)
            return await provider_clients.get_model(model_ref), model_ref

        return PickedModel(
            choice,
            LOCAL_MODEL_ID,
            get_model,
            self._silence_timeout,
            self.tracer,
            _context_tokens=_LOCAL_CONTEXT_TOKENS,
        )


async def _ask_briefly(picked_model: PickedModel, loader: LibraryLoader) -> ModelTestAnswer:
    """Send a short request and read the answer. Raises ModelError."""
    await loader.load_in_thread("pydantic_ai.messages")
    from pydantic_ai.messages import ModelRequest as Message

    await picked_model.get_model()
    started_at, text = time.monotonic(), ""
    prompt = [Message.user_text_prompt(_TEST_PROMPT)]
    asking = picked_model.stream(prompt, (), instructions=None, temperature=None, max_tokens=_TEST_TOKENS)
    async with asking as stream:
        try:
            async for piece in stream:
                text += piece.delta if piece.kind == "text" else ""
        except ModelFailed:
            # A model that only reasoned within the limit of tokens has answered.
            if stream.response().finish_reason != "length":
                raise
    seconds = time.monotonic() - started_at
    return ModelTestAnswer(seconds, to_single_line(text, _MAX_TEST_ANSWER_CHARACTERS))


def _to_entry(model: StoredModel, api_key: str | None) -> ModelEntry:
    return ModelEntry(
        model.name,
        f"{model.provider}:{model.model}",
        model.base_url,
        api_key,
        label=model.label,
        sees=model.sees,
        hears=model.hears,
        temperature=model.temperature,
        context=model.context,
        input_price=model.input_price,
        output_price=model.output_price,
    )


def _to_record(entry: ModelEntry) -> StoredModel:
    provider, _, name = entry.model.partition(":")
    return StoredModel(
        name=entry.name,
        provider=provider,
        model=name,
        label=entry.label,
        base_url=None if entry.base_url is None else mask_user_info(entry.base_url),
        sees=entry.sees,
        hears=entry.hears,
        temperature=entry.temperature,
        context=entry.context,
        input_price=entry.input_price,
        output_price=entry.output_price,
    )


def _model_identity(provider: str, name: str) -> tuple[str, str]:
    """Return a value that is equal for all spellings of a model.

    OpenAI has two APIs with one key; Google accepts the prefix, and Ollama leaves out the tag.
    """
    keys = MODEL_PROVIDERS[provider].key_variables if provider in MODEL_PROVIDERS else ()
    return keys[0] if keys else provider, name.lower().removeprefix("models/").removesuffix(":latest")


def _find_prices(model: ModelEntry | StoredModel) -> TokenPrices | None:
    if model.input_price is None and model.output_price is None:
        return None
    return TokenPrices(model.input_price or 0.0, model.output_price or 0.0)


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
