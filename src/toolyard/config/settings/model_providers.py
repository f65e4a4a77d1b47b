"""Table of model providers: everything that differs between them, except the form of tool schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["MODEL_KEY_VARIABLE_PREFIX", "MODEL_PROVIDERS", "ModelProvider"]

MODEL_KEY_VARIABLE_PREFIX = "TOOLYARD_MODEL_KEY_"
"""Prefix of environment variables with keys that admins may use for a model at any address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProvider:
    """A provider, by default with OpenAI's Chat Completions API, which most others support."""

    label: str
    base_url: str
    """Always passed explicitly: the libraries would read others from the environment."""
    key_variables: tuple[str, ...] = ()
    """Usual environment variables of its API key. A provider without them needs no key."""
    url_variables: tuple[str, ...] = ()
    """Usual environment variables of its base URL; without them, it has no setting for one."""
    settings_prefix: str | None = None
    """Prefix of its settings, such as ``openai`` in ``openai_api_key``; None for its own name."""
    model_class: str | None = None
    """Model in ``pydantic_ai.models``, as ``module:Class``; None for Chat Completions."""
    provider_class: str | None = None
    """Provider in ``pydantic_ai.providers``, as ``module:Class``; None for Chat Completions."""
    compatible_elsewhere: bool = False
    """True if any other address than ``base_url`` is used with Chat Completions."""
    tool_format: str = "openai"
    """Value of ``ProviderApi`` for the schemas of tools."""
    takes_audio: bool = True
    """False if its API accepts no audio, whatever the model."""
    self_hosted: bool = False
    """True if its operator sets the size of context windows."""
    telemetry_name: str | None = None
    """Its name in traces (``gen_ai.provider.name``); None for the key of this table."""
    explicit_cache: bool = False
    """True if it caches prompts on request only."""


MODEL_PROVIDERS: Mapping[str, ModelProvider] = {
    "openai": ModelProvider(
        label="OpenAI",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        url_variables=("OPENAI_BASE_URL",),
        model_class="openai:OpenAIResponsesModel",
        provider_class="openai:OpenAIProvider",
        compatible_elsewhere=True,
        takes_audio=False,
    ),
    "openai-responses": ModelProvider(
        label="OpenAI",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        url_variables=("OPENAI_BASE_URL",),
        settings_prefix="openai",
        telemetry_name="openai",
        model_class="openai:OpenAIResponsesModel",
        provider_class="openai:OpenAIProvider",
        tool_format="openai-responses",
        takes_audio=False,
    ),
    "anthropic": ModelProvider(
        label="Anthropic",
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        url_variables=("ANTHROPIC_BASE_URL",),
        model_class="anthropic:AnthropicModel",
        provider_class="anthropic:AnthropicProvider",
        tool_format="anthropic",
        explicit_cache=True,
    ),
    "google": ModelProvider(
        label="Google Gemini",
        base_url="https://generativelanguage.googleapis.com",
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        model_class="google:GoogleModel",
        provider_class="google:GoogleProvider",
        tool_format="gemini",
        telemetry_name="gcp.gemini",
    ),
    "ollama": ModelProvider(
        label="Ollama",
        base_url="http://127.0.0.1:11434/v1",
        model_class="ollama:OllamaModel",
        provider_class="ollama:OllamaProvider",
        self_hosted=True,
    ),
}
"""Providers by the name that stands before the colon in ``provider:name``."""
