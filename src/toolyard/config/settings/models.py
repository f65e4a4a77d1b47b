"""Models that an operator lists: ``[models.NAME]`` in ``toolyard.toml``, or JSON in ``TOOLYARD_MODELS``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from toolyard.config.settings import value_types as kind
from toolyard.config.settings.value_types import Fault, Kind, Unfit
from toolyard.config.suggestions import did_you_mean

__all__ = ["PROVIDERS", "ModelEntry", "models", "provider_fault"]

PROVIDERS = ("openai", "openai-responses", "anthropic", "google", "ollama")
"""What may stand before the colon of ``provider:name``."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_EXPECTED = "a table of models, each with a model"
_HINT = 'for example: [models.fast] with the line model = "openai:gpt-5-mini"'


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model that the operator listed. As text, and in its repr, it has no key."""

    name: str
    model: str
    """``provider:name``, the name being what the provider calls it."""
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    label: str | None = None
    sees: bool | None = None
    """Does it take pictures? None: what is known of it."""
    hears: bool | None = None
    temperature: float | None = None
    context: int | None = None
    """Tokens that it takes at once. None: what is known of it."""

    def __str__(self) -> str:
        return f"{self.name} ({self.model})"


def provider_fault(model: str) -> str | None:
    """What keeps a text from being ``provider:name``."""
    provider, colon, name = model.partition(":")
    if not colon or not name.strip():
        return "names no provider and model, as in openai:gpt-5-mini"
    return None if provider in PROVIDERS else f"names a provider that is not one of {', '.join(PROVIDERS)}"


def models() -> Kind[tuple[ModelEntry, ...]]:
    """A table of models, in a variable as JSON."""

    def from_text(text: str, folder: Path) -> tuple[ModelEntry, ...]:
        import json  # only a variable that is set needs it

        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            # The text may hold keys; these words quote none of it.
            message = f"not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}"
            raise Unfit(Fault((), message, _HINT)) from None
        except RecursionError:
            raise Unfit(Fault((), "not valid JSON: too deeply nested", _HINT)) from None
        return _read(value, folder)

    return Kind(_EXPECTED, _read, from_text)


def _read(value: object, folder: Path) -> tuple[ModelEntry, ...]:
    if not isinstance(value, Mapping):
        raise Unfit(Fault((), f"expected {_EXPECTED}, found {_sort(value)}", _HINT))
    faults: list[Fault] = []
    found = [
        _entry(str(name), entry, folder, faults)
        for name, entry in cast("Mapping[object, object]", value).items()
    ]
    if faults:
        raise Unfit(*faults)
    return tuple(entry for entry in found if entry is not None)


def _entry(name: str, value: object, folder: Path, faults: list[Fault]) -> ModelEntry | None:
    if not _NAME.fullmatch(name):
        hint = "letters, digits, dots, dashes and underscores, at most 64"
        faults.append(Fault((name,), "not a name for a model", hint))
        return None
    if not isinstance(value, Mapping):
        faults.append(Fault((name,), f"expected a table, found {_sort(value)}", _HINT))
        return None
    given = cast("Mapping[str, object]", value)
    read = {key: _value(name, key, each, folder, faults) for key, each in given.items() if each is not None}
    if "model" not in given:
        faults.append(Fault((name, "model"), "is missing", _HINT))
    return None if faults else ModelEntry(name, **cast("dict[str, Any]", read))


def _value(name: str, key: str, value: object, folder: Path, faults: list[Fault]) -> object:
    expected = _KEYS.get(key)
    if expected is None:
        faults.append(Fault((name, key), "unknown key", did_you_mean(key, _KEYS)))
        return None
    try:
        return expected.from_value(value, folder)
    except Unfit:
        found = _sort(value) if key == "api_key" or not isinstance(value, str) else ascii(value[:60])
        faults.append(Fault((name, key), f"expected {expected.expected}, found {found}"))
    return None


def _sort(value: object) -> str:
    """What a value is, without the value: it may be a key in the wrong place."""
    names: dict[type, str] = {str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "a list" if isinstance(value, (list, tuple)) else "something else")


def _reference() -> Kind[str]:
    def check(value: object, folder: Path) -> str:
        model = kind.text().from_value(value, folder)
        if provider_fault(model) is not None:
            raise Unfit
        return model

    return Kind(f"provider:name, the provider one of {', '.join(PROVIDERS)}", check, check)


_KEYS: Mapping[str, Kind[object]] = {
    "model": _reference(),
    "base_url": kind.url(),
    "api_key": kind.text(),
    "label": kind.text(),
    "sees": kind.flag(),
    "hears": kind.flag(),
    "temperature": kind.number(0, inclusive=True),
    "context": kind.integer(1_000),
}
