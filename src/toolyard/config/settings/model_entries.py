"""Model providers, and the models listed by an operator: ``[models.NAME]`` in ``toolyard.toml``, or JSON in
``TOOLYARD_MODELS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from toolyard.config.settings import value_types as kind
from toolyard.config.settings.value_types import InvalidValueError, ValueFault, ValueType
from toolyard.config.suggestions import did_you_mean

__all__ = [
    "MODEL_KEY_TYPES",
    "MODEL_KEY_VARIABLE_PREFIX",
    "MODEL_NAME_HINT",
    "MODEL_PROVIDERS",
    "ModelEntry",
    "ModelProvider",
    "is_model_name",
    "model_ref_fault",
    "model_table",
]


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
        label="OpenAI Responses API",
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


_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MODEL_NAME_HINT = "use at most 64 letters, digits, dots, hyphens and underscores"
_EXPECTED_TABLE = "a table of models, each with a model"
_EXAMPLE_HINT = 'for example: [models.fast] with the line model = "openai:gpt-5-mini"'


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One listed model. Neither ``str`` nor ``repr`` contains the API key."""

    name: str
    model: str
    """``provider:name``, with the provider's own name of the model."""
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    label: str | None = None
    sees: bool | None = None
    """Whether it accepts images. None: as known for the model."""
    hears: bool | None = None
    """Whether it accepts audio. None: as known for the model."""
    temperature: float | None = None
    context: int | None = None
    """Size of the context window in tokens. None: as known for the model."""
    input_price: float | None = None
    """US dollars per million input tokens. None: as in the price list of the libraries."""
    output_price: float | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.model})"


def is_model_name(name: str) -> bool:
    """Return whether a text can be the name of a listed model."""
    return _MODEL_NAME.fullmatch(name) is not None


def model_ref_fault(model: str) -> str | None:
    """Return why a string is not ``provider:name``; the text completes a sentence about it."""
    provider, colon, name = model.partition(":")
    if not colon or not name.strip():
        return "does not have the form provider:name, as in openai:gpt-5-mini"
    return None if provider in MODEL_PROVIDERS else f"its provider is not one of {', '.join(MODEL_PROVIDERS)}"


def model_table() -> ValueType[tuple[ModelEntry, ...]]:
    """Type of tables of models; a variable contains JSON."""

    def from_text(text: str, folder: Path) -> tuple[ModelEntry, ...]:
        import json  # needed only if the variable is set

        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            # The text may contain API keys, so the message does not quote it.
            message = f"not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}"
            raise InvalidValueError(ValueFault((), message, _EXAMPLE_HINT)) from None
        except RecursionError:
            raise InvalidValueError(
                ValueFault((), "not valid JSON: too deeply nested", _EXAMPLE_HINT)
            ) from None
        return _read_models(value, folder)

    return ValueType(_EXPECTED_TABLE, _read_models, from_text)


def _read_models(value: object, folder: Path) -> tuple[ModelEntry, ...]:
    if not isinstance(value, Mapping):
        raise InvalidValueError(
            ValueFault((), f"expected {_EXPECTED_TABLE}, found {_describe_type(value)}", _EXAMPLE_HINT)
        )
    faults: list[ValueFault] = []
    entries = [
        _read_model(str(name), entry, folder, faults)
        for name, entry in cast("Mapping[object, object]", value).items()
    ]
    if faults:
        raise InvalidValueError(*faults)
    return tuple(entry for entry in entries if entry is not None)


def _read_model(name: str, value: object, folder: Path, faults: list[ValueFault]) -> ModelEntry | None:
    if not is_model_name(name):
        faults.append(ValueFault((name,), "not a valid name for a model", MODEL_NAME_HINT))
        return None
    if not isinstance(value, Mapping):
        faults.append(ValueFault((name,), f"expected a table, found {_describe_type(value)}", _EXAMPLE_HINT))
        return None
    table = cast("Mapping[str, object]", value)
    options = {
        key: _read_model_key(name, key, item, folder, faults)
        for key, item in table.items()
        if item is not None
    }
    if "model" not in table:
        faults.append(ValueFault((name, "model"), "is missing", _EXAMPLE_HINT))
    return None if faults else ModelEntry(name, **cast("dict[str, Any]", options))


def _read_model_key(name: str, key: str, value: object, folder: Path, faults: list[ValueFault]) -> object:
    expected = MODEL_KEY_TYPES.get(key)
    if expected is None:
        faults.append(ValueFault((name, key), "unknown key", did_you_mean(key, MODEL_KEY_TYPES)))
        return None
    try:
        return expected.from_value(value, folder)
    except InvalidValueError:
        # Never quote an API key in a message.
        found = _describe_type(value) if key == "api_key" or not isinstance(value, str) else ascii(value[:60])
        faults.append(ValueFault((name, key), f"expected {expected.expected}, found {found}"))
    return None


def _describe_type(value: object) -> str:
    """Return the kind of a value in words, without the value: it may be an API key in the wrong place."""
    names: dict[type, str] = {str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "a list" if isinstance(value, (list, tuple)) else "something else")


def _model_ref_type() -> ValueType[str]:
    def check(value: object, folder: Path) -> str:
        model = kind.text().from_value(value, folder)
        if model_ref_fault(model) is not None:
            raise InvalidValueError
        return model

    return ValueType(f"provider:name, the provider one of {', '.join(MODEL_PROVIDERS)}", check, check)


MODEL_KEY_TYPES: Mapping[str, ValueType[object]] = {
    "model": _model_ref_type(),
    "base_url": kind.url(),
    "api_key": kind.text(),
    "label": kind.text(),
    "sees": kind.flag(),
    "hears": kind.flag(),
    "temperature": kind.number(0, inclusive=True),
    "context": kind.integer(1_000),
    "input_price": kind.number(0, inclusive=True),
    "output_price": kind.number(0, inclusive=True),
}
