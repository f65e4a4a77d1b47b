"""Create models of each provider, and keep HTTP clients open for them.

pydantic-ai is large and optional, so it is imported in a thread when a model is first used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolyard.agents.models.errors import KeyRefused, ModelError, ModelFailed
from toolyard.agents.models.library_loader import LibraryLoader
from toolyard.agents.models.model_ref import ModelRef, ProviderAccess
from toolyard.net import AddressGuard

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

__all__ = ["ProviderClients"]

_PLACEHOLDER_KEY = "no-key"
"""Sent to an address that needs no key, because the libraries require one."""
_CONNECT_TIMEOUT_SECONDS = 10.0
_READ_TIMEOUT_SECONDS = 600.0


class ProviderClients:
    """Cache of created models, with one HTTP client for each provider access."""

    def __init__(
        self,
        silence_timeout: float,
        loader: LibraryLoader,
        guard: AddressGuard = AddressGuard(),  # noqa: B008 - frozen
    ) -> None:
        """``guard`` checks the addresses of guarded accesses."""
        self._guard = guard
        self._silence_timeout = silence_timeout
        self._loader = loader
        self._clients: dict[ProviderAccess, httpx2.AsyncClient] = {}
        self._models: dict[ModelRef, Model] = {}
        self._build_lock = asyncio.Lock()

    @property
    def open_count(self) -> int:
        """Number of open HTTP clients."""
        return len(self._clients)

    async def get_model(self, model_ref: ModelRef) -> Model:
        """Return the model, ready for requests.

        Raises KeyRefused, or ModelFailed if the libraries are missing.
        """
        cached = self._models.get(model_ref)
        if cached is not None:
            return cached
        async with self._build_lock:
            if model_ref not in self._models:
                # Importing the libraries and reading certificates takes about a second, so it runs in a
                # thread.
                self._models[model_ref] = await asyncio.to_thread(self._build_model, model_ref)
            return self._models[model_ref]

    async def load_openai_compatible(self) -> None:
        """Load the libraries for OpenAI-compatible endpoints without creating a model. Raises ModelFailed."""
        await asyncio.to_thread(self._import_openai_compatible)

    def _import_openai_compatible(self) -> None:
        with self._loader.exclusive_imports():
            for module in ("models.openai", "providers.openai_compatible"):
                import_module(f"pydantic_ai.{module}")
            _load_response_modules()

    async def close(self) -> None:
        """Close all connections."""
        await self.close_accesses(list(self._clients))

    async def close_accesses(self, accesses: Collection[ProviderAccess]) -> None:
        """Close the connections of these accesses. Requests that use them fail."""
        self._models = {ref: model for ref, model in self._models.items() if ref.access not in accesses}
        for access in accesses:
            if (client := self._clients.pop(access, None)) is not None:
                await client.aclose()

    def _build_model(self, model_ref: ModelRef) -> Model:
        access = model_ref.access
        if access.lacks_key:
            hint = f"set {access.key_variable}, or api_key"
            raise KeyRefused(f"no API key is set for {access.provider}", hint=hint)
        try:
            with self._loader.exclusive_imports():
                client = self._get_client(access)
                return _create_model(model_ref, access.api_key or _PLACEHOLDER_KEY, client)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - a provider's library may raise anything
            raise ModelFailed(
                model_ref.sanitize_message(f"{model_ref.name} could not be set up: {error}")
            ) from None

    def _get_client(self, access: ProviderAccess) -> httpx2.AsyncClient:
        import httpx2
        from pydantic_ai.models import create_async_httpx2_client

        from toolyard.agents.models.endpoint_http import limit_responses

        if access not in self._clients:
            _load_response_modules()
            timeout = httpx2.Timeout(
                max(_READ_TIMEOUT_SECONDS, self._silence_timeout), connect=_CONNECT_TIMEOUT_SECONDS
            )
            transport = None
            if access.guarded:
                # Imported late: it loads an HTTP library.
                from toolyard.agents.models.endpoint_http import GuardedTransport

                transport = GuardedTransport(self._guard)
            client = create_async_httpx2_client(timeout=timeout, transport=transport)
            limit_responses(client)
            self._clients[access] = client
        return self._clients[access]


def _load_response_modules() -> None:
    """Load everything that an answer needs, including the price list, so that nothing is imported in the
    event loop.
    """
    from pydantic_ai.messages import ModelResponse

    import_module("toolyard.agents.models.model_stream")
    ModelResponse(parts=[], model_name="gpt-4o", provider_name="openai").cost()


def _create_model(model_ref: ModelRef, key: str, client: httpx2.AsyncClient) -> Model:
    access = model_ref.access
    if access.compatible:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        # Opaque data of an answer, such as encrypted reasoning, is returned only to a provider of the same
        # name.
        provider = OpenAICompatibleProvider(
            access.provider_label, base_url=access.url, api_key=key, http_client=client
        )
        return OpenAIChatModel(model_ref.name, provider=provider)
    provider_class = _import_class("providers", access.definition.provider_class)
    provider = provider_class(base_url=access.url, api_key=key, http_client=client)
    return _import_class("models", access.definition.model_class)(model_ref.name, provider=provider)


def _import_class(package: str, name: str | None) -> Callable[..., Any]:
    module, _, class_name = (name or "").partition(":")
    return getattr(import_module(f"pydantic_ai.{package}.{module}"), class_name)
