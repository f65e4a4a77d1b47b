"""How the value of a setting is read, from TOML or from the text of a variable."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar, cast
from urllib.parse import urlsplit

from toolyard.config.value_checks import host_in_ascii, url_fault

__all__ = [
    "Fault",
    "Kind",
    "Unfit",
    "choice",
    "flag",
    "hosts",
    "integer",
    "number",
    "origin",
    "path",
    "text",
    "texts",
    "url",
]

T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong within a value: the keys that lead there, and words without secrets."""

    at: tuple[str, ...]
    message: str
    hint: str | None = None


class Unfit(Exception):
    """The value is not what the kind expects; ``faults``, where there are any, say what in it is wrong."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(*faults)
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """``expected`` completes "expected …" in messages.

    ``from_value`` takes what a TOML file or a caller says, ``from_text`` what a variable holds; both take the
    folder that relative paths start from, and raise Unfit.
    """

    expected: str
    from_value: Callable[[object, Path], T_co]
    from_text: Callable[[str, Path], T_co]


def text() -> Kind[str]:
    """A text that is not empty."""
    return Kind("a string that is not empty", lambda value, _: _full(value), lambda value, _: _full(value))


def choice(options: type[E]) -> Kind[E]:
    """One of the words of an enumeration."""

    def pick(value: object, _: Path) -> E:
        try:
            return options(_full(value))
        except ValueError as error:
            raise Unfit from error

    return Kind(" or ".join(f'"{option.value}"' for option in options), pick, pick)


def flag() -> Kind[bool]:
    """True or false; in a variable also 1, yes, on and their opposites."""

    def from_value(value: object, _: Path) -> bool:
        if isinstance(value, bool):
            return value
        raise Unfit

    def from_text(value: str, _: Path) -> bool:
        word = value.strip().casefold()
        if word not in _YES + _NO:
            raise Unfit
        return word in _YES

    return Kind("true or false", from_value, from_text)


def integer(least: int, most: int | None = None) -> Kind[int]:
    """A whole number within bounds."""

    def check(value: object, _: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unfit
        if value < least or (most is not None and value > most):
            raise Unfit
        return value

    def from_text(value: str, folder: Path) -> int:
        try:
            return check(int(value), folder)
        except ValueError as error:
            raise Unfit from error

    bounds = f"{least} or more" if most is None else f"from {least} to {most}"
    return Kind(f"a whole number, {bounds}", check, from_text)


def number(least: float, *, inclusive: bool = False) -> Kind[float]:
    """A finite number above a bound, or at it where that is allowed too."""

    def check(value: object, _: Path) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Unfit
        if not least <= value < float("inf") or (value == least and not inclusive):
            raise Unfit
        return float(value)

    def from_text(value: str, folder: Path) -> float:
        try:
            return check(float(value), folder)
        except ValueError as error:
            raise Unfit from error

    return Kind(
        f"a number, {least:g} or more" if inclusive else f"a number above {least:g}", check, from_text
    )


def texts() -> Kind[tuple[str, ...]]:
    """A list of texts; in a variable separated by commas."""

    def from_value(value: object, _: Path) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            raise Unfit
        return tuple(_full(item) for item in cast("list[object] | tuple[object, ...]", value))

    def from_text(value: str, _: Path) -> tuple[str, ...]:
        return tuple(part.strip() for part in value.split(",") if part.strip())

    return Kind("a list of strings", from_value, from_text)


def url() -> Kind[str]:
    """An http(s) address, without a slash at its end."""

    def check(value: object, _: Path) -> str:
        address = _full(value)
        if url_fault(address) is not None:
            raise Unfit
        return address.rstrip("/")

    return Kind("an http(s) URL", check, check)


def origin() -> Kind[str]:
    """An http(s) address without anything after host and port: we answer at the root of a host."""

    def check(value: object, _: Path) -> str:
        address = _full(value)
        if url_fault(address) is not None:
            raise Unfit
        parts = urlsplit(address)
        host = host_in_ascii(parts.netloc)
        if host is None or parts.path.strip("/") or parts.query or parts.fragment:
            raise Unfit
        return f"{parts.scheme}://{host}"

    return Kind("an http(s) URL without a path, such as https://toolyard.example.org", check, check)


def hosts() -> Kind[tuple[str, ...]]:
    """A list of names that requests may carry, each with or without a port."""
    lists = texts()

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        read = [host_in_ascii(name) for name in names]
        if None in read:
            raise Unfit
        return tuple(name for name in read if name is not None)

    return Kind(
        "a list of host names, such as yard.example.org or yard.example.org:8443",
        lambda value, folder: check(lists.from_value(value, folder)),
        lambda value, folder: check(lists.from_text(value, folder)),
    )


def path() -> Kind[Path]:
    """A path. In the file a relative one starts from the data directory, elsewhere from where one is."""

    def check(value: object, folder: Path) -> Path:
        written = _full(str(value) if isinstance(value, Path) else value)
        return Path(os.path.abspath(folder / os.path.expanduser(written)))

    return Kind("a path", check, check)


def _full(value: object) -> str:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    raise Unfit
