"""Providers: how a model of each is made, and the HTTP clients that are kept open for them.

pydantic-ai is large and optional, so it is imported when a model is first used, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from toolyard.agents.models.errors import KeyRefused, ModelError, ModelFailed
from toolyard.agents.models.library_loader import Loading
from toolyard.agents.models.model_ref import OWN, VARIABLES, Access, Asked

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

__all__ = ["Clients"]

_NO_KEY = "no-key"
"""What is sent to an address that needs no key; the libraries insist on one."""
_CONNECT = 10.0
_READ = 600.0


class Clients:
    """The models that were used, with one open HTTP client for each way to reach a provider."""

    def __init__(self, silence: float, loading: Loading) -> None:
        self._silence = silence
        self._loading = loading
        self._clients: dict[Access, httpx2.AsyncClient] = {}
        self._models: dict[Asked, Model] = {}
        self._making = asyncio.Lock()

    async def model(self, asked: Asked) -> Model:
        """The model, ready to be asked. Raises KeyRefused or, without the libraries, ModelFailed."""
        known = self._models.get(asked)
        if known is not None:
            return known
        async with self._making:
            if asked not in self._models:
                # Importing the libraries and reading certificates takes a second: not in the loop.
                self._models[asked] = await asyncio.to_thread(self._make, asked)
            return self._models[asked]

    async def load_compatible(self) -> None:
        """Load what speaks to OpenAI-compatible addresses, and make nothing. Raises ModelFailed."""
        await asyncio.to_thread(self._load_compatible)

    def _load_compatible(self) -> None:
        with self._loading.alone():
            for module in ("models.openai", "providers.openai_compatible"):
                import_module(f"pydantic_ai.{module}")
            _load()

    async def close(self) -> None:
        """Close every connection."""
        self._models.clear()
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()

    def _make(self, asked: Asked) -> Model:
        access = asked.access
        if access.lacks_key:
            hint = f"set {VARIABLES[access.provider]}, or api_key"
            raise KeyRefused(f"there is no key for {access.provider}", hint=hint)
        try:
            with self._loading.alone():
                client = self._client(access)
                return _MAKERS[access.provider](asked, access.api_key or _NO_KEY, client)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - a provider's library may raise anything
            raise ModelFailed(asked.words(f"{asked.name} could not be made: {error}")) from None

    def _client(self, access: Access) -> httpx2.AsyncClient:
        import httpx2
        from pydantic_ai.models import create_async_httpx2_client

        if access not in self._clients:
            _load()
            timeout = httpx2.Timeout(max(_READ, self._silence), connect=_CONNECT)
            self._clients[access] = create_async_httpx2_client(timeout=timeout)
        return self._clients[access]


def _load() -> None:
    """Have all that an answer needs at hand, the price list too: nothing is to be loaded in the loop."""
    from pydantic_ai.messages import ModelResponse

    import_module("toolyard.agents.models.response_stream")
    ModelResponse(parts=[], model_name="gpt-4o", provider_name="openai").cost()


# Each provider.


def _openai(asked: Asked, key: str, client: httpx2.AsyncClient) -> Model:
    if asked.access.base_url is None:
        return _responses(asked, key, client)
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    # What a provider sealed within an answer is given back only to one of the same name.
    provider = OpenAICompatibleProvider(
        asked.access.place, base_url=asked.access.url, api_key=key, http_client=client
    )
    return OpenAIChatModel(asked.name, provider=provider)


def _responses(asked: Asked, key: str, client: httpx2.AsyncClient) -> Model:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=asked.access.url, api_key=key, http_client=client)
    return OpenAIResponsesModel(asked.name, provider=provider)


def _anthropic(asked: Asked, key: str, client: httpx2.AsyncClient) -> Model:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(base_url=asked.access.url, api_key=key, http_client=client)
    return AnthropicModel(asked.name, provider=provider)


def _google(asked: Asked, key: str, client: httpx2.AsyncClient) -> Model:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(base_url=asked.access.url, api_key=key, http_client=client)
    return GoogleModel(asked.name, provider=provider)


def _ollama(asked: Asked, key: str, client: httpx2.AsyncClient) -> Model:
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.providers.ollama import OllamaProvider

    provider = OllamaProvider(base_url=asked.access.url, api_key=key, http_client=client)
    return OllamaModel(asked.name, provider=provider)


_MAKERS: dict[str, Callable[[Asked, str, httpx2.AsyncClient], Model]] = {
    "openai": _openai,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "google": _google,
    "ollama": _ollama,
}
assert _MAKERS.keys() == OWN.keys()
