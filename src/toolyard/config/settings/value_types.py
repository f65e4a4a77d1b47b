"""Types of setting values, and their conversion from TOML and from environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar, cast
from urllib.parse import urlsplit

from toolyard.config.value_checks import normalize_host, url_fault

__all__ = [
    "InvalidValueError",
    "ValueFault",
    "ValueType",
    "choice",
    "flag",
    "host_names",
    "integer",
    "number",
    "origin",
    "path",
    "text",
    "texts",
    "url",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)

_TRUE_WORDS, _FALSE_WORDS = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class ValueFault:
    """Fault inside a value: the keys that lead to it, and a message without secrets."""

    keys: tuple[str, ...]
    message: str
    hint: str | None = None


class InvalidValueError(Exception):
    """Raised for a value of the wrong type. ``faults``, which may be empty, describe parts of it."""

    def __init__(self, *faults: ValueFault) -> None:
        super().__init__(*faults)
        self.faults = faults


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T_co]):
    """Type of a setting. ``expected`` completes "expected …" in messages.

    ``from_value`` converts a value from TOML or from a caller, ``from_text`` the text of a variable. The
    second argument of both is the folder for relative paths. Both raise InvalidValueError.
    """

    expected: str
    from_value: Callable[[object, Path], T_co]
    from_text: Callable[[str, Path], T_co]


def _make_type(
    expected: str, check: Callable[[object, Path], T], parse: Callable[[str], object] = str
) -> ValueType[T]:
    """Return a type whose texts are parsed first. ``parse`` raises ValueError."""

    def from_text(value: str, folder: Path) -> T:
        try:
            parsed = parse(value)
        except ValueError as error:
            raise InvalidValueError from error
        return check(parsed, folder)

    return ValueType(expected, check, from_text)


def text() -> ValueType[str]:
    """Type of non-empty strings."""
    return _make_type("a non-empty string", lambda value, _: _require_text(value))


def choice(options: type[E]) -> ValueType[E]:
    """Type of members of an enumeration."""

    def check(value: object, _: Path) -> E:
        try:
            return options(_require_text(value))
        except ValueError as error:
            raise InvalidValueError from error

    return _make_type(" or ".join(f'"{option.value}"' for option in options), check)


def flag() -> ValueType[bool]:
    """Type of booleans; a variable may also be 1, yes or on, or 0, no or off."""

    def check(value: object, _: Path) -> bool:
        if isinstance(value, bool):
            return value
        raise InvalidValueError

    # A text that is not among the words becomes None, which ``check`` refuses.
    words = {**dict.fromkeys(_TRUE_WORDS, True), **dict.fromkeys(_FALSE_WORDS, False)}
    return _make_type("true or false", check, lambda text: words.get(text.strip().casefold()))


def integer(minimum: int, maximum: int | None = None) -> ValueType[int]:
    """Type of integers from ``minimum`` to ``maximum``, inclusive."""

    def check(value: object, _: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int):  # bool is a subclass of int
            raise InvalidValueError
        if value < minimum or (maximum is not None and value > maximum):
            raise InvalidValueError
        return value

    bounds = f"{minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
    return _make_type(f"a whole number, {bounds}", check, int)


def number(minimum: float, *, inclusive: bool = False) -> ValueType[float]:
    """Type of finite numbers above ``minimum``, or from it if ``inclusive``."""

    def check(value: object, _: Path) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidValueError
        if not minimum <= value < float("inf") or (value == minimum and not inclusive):
            raise InvalidValueError
        return float(value)

    bounds = f", {minimum:g} or more" if inclusive else f" above {minimum:g}"
    return _make_type(f"a number{bounds}", check, float)


def texts() -> ValueType[tuple[str, ...]]:
    """Type of lists of strings; in a variable they are separated by commas."""
    return _make_type("a list of strings", _check_texts, _split_list)


def _check_texts(value: object, _: Path) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise InvalidValueError
    return tuple(_require_text(item) for item in cast("list[object] | tuple[object, ...]", value))


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def url() -> ValueType[str]:
    """Type of http(s) URLs. A trailing slash is removed."""

    def check(value: object, _: Path) -> str:
        text = _require_text(value)
        if url_fault(text) is not None:
            raise InvalidValueError
        return text.rstrip("/")

    return _make_type("an http(s) URL", check)


def origin() -> ValueType[str]:
    """Type of http(s) URLs without a path, since Toolyard must be at the root of a host."""

    def check(value: object, _: Path) -> str:
        text = _require_text(value)
        if url_fault(text) is not None:
            raise InvalidValueError
        parts = urlsplit(text)
        host = normalize_host(parts.netloc)
        if host is None or parts.path.strip("/") or parts.query or parts.fragment:
            raise InvalidValueError
        return f"{parts.scheme}://{host}"

    return _make_type("an http(s) URL without a path, such as https://toolyard.example.org", check)


def host_names() -> ValueType[tuple[str, ...]]:
    """Type of lists of host names, each with an optional port."""

    def check(value: object, folder: Path) -> tuple[str, ...]:
        normalized = [normalize_host(name) for name in _check_texts(value, folder)]
        if None in normalized:
            raise InvalidValueError
        return tuple(name for name in normalized if name is not None)

    expected = "a list of host names, such as yard.example.org or yard.example.org:8443"
    return _make_type(expected, check, _split_list)


def path() -> ValueType[Path]:
    """Type of paths, relative to the data directory in ``toolyard.toml``, else to the working directory."""

    def check(value: object, folder: Path) -> Path:
        text = _require_text(str(value) if isinstance(value, Path) else value)
        return Path(os.path.abspath(folder / os.path.expanduser(text)))

    return _make_type("a path", check)


def _require_text(value: object) -> str:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    raise InvalidValueError
