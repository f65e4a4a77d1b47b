"""YAML as keys with lines and texts, and nothing built from tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

__all__ = ["Entry", "NoYaml", "Value", "read_yaml"]


@dataclass(frozen=True, slots=True)
class NoYaml:
    """Why a text is no YAML mapping. ``line`` is counted from 0."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Value:
    """What stands after a key: a text, a list of values, or something else, which is neither."""

    line: int
    text: str | None = None
    quoted: bool = False
    items: tuple[Value, ...] | None = None

    def __str__(self) -> str:
        if self.text is None:
            return "an object" if self.items is None else "a list"
        return f"'{self.text:.60}'" if self.text else "nothing"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with its value. Lines are counted from 0."""

    key: str
    line: int
    value: Value


def read_yaml(text: str) -> list[Entry] | NoYaml:
    """The keys of a YAML mapping in their order, also those that stand twice. Never raises."""
    # PyYAML takes a while to load, and only a file with agents in it needs it.
    import yaml

    compose = cast(Any, yaml).compose
    try:
        # Nodes, because they know their lines, and because building values from tags can raise anything.
        root = compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.context, error.problem) if part)
        return NoYaml(mark.line if mark else 0, words)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        return NoYaml(0, str(error).partition("\n")[0] or type(error).__name__)
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        return NoYaml(_line(root), "expected one 'key: value' a line")
    pairs = cast(list[tuple[Any, Any]], root.value)
    for key, _ in pairs:
        if not isinstance(key.value, str):
            return NoYaml(_line(key), "a list or an object stands where a key should")
    return [Entry(key.value, _line(key), _value(value)) for key, value in pairs]


def _value(node: Any, *, inside: bool = False) -> Value:
    found: object = node.value
    if isinstance(found, str):
        return Value(_line(node), text=found.strip(), quoted=node.style is not None)
    if node.id == "sequence" and not inside:
        return Value(_line(node), items=tuple(_value(item, inside=True) for item in cast(list[Any], found)))
    return Value(_line(node))


def _line(node: Any) -> int:
    return cast(int, node.start_mark.line)
