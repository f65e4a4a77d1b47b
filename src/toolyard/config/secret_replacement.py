"""Replacement of literal secrets in a server's entry by variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolyard.config.sources.json_document import JsonValue
from toolyard.config.value_checks import KNOWN_KEY, find_path_tokens

__all__ = ["VariableEntry", "find_secret_parameter", "find_secret_spans", "replace_secrets"]

_SECRET_NAME = re.compile(r"auth|token|secret|key|password|passwd|cookie|credential", re.IGNORECASE)
_AUTH_SCHEME = re.compile(r"(?i)(bearer|basic|token|apikey)\s+(?=\S)")
_MIN_SECRET_CHARACTERS = 8
"""Shorter values are switches and numbers rather than secrets. Headers have no minimum."""
_NAME_SEPARATORS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])")
# The last word of a parameter says what it is: --api-key is a secret, --key-file and --max-tokens are not.
_SECRET_WORDS = frozenset(
    (
        *("token", "secret", "key", "apikey", "password", "passwd", "pwd", "pat", "jwt", "signature"),
        *("credential", "credentials", "cookie", "authorization"),
    )
)
_ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)(?:=|:\s*(?!//))", re.ASCII)
_URL_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#:]*:(?P<secret>[^/?#]+)@")
_URL_PARAMETER = re.compile(r"[?&](?P<name>[^=&#]+)=(?P<secret>[^&#]+)")
_OTHER_STARTS = ("/", "./", "../", "~", "-")
"""Starts of paths and options, which are not secrets."""


@dataclass(frozen=True, slots=True)
class VariableEntry:
    """An entry with ``${NAME}`` in place of secrets, and the values of these variables."""

    value: dict[str, JsonValue]
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def replace_secrets(server_id: str, entry: Mapping[str, JsonValue], env: Mapping[str, str]) -> VariableEntry:
    """Replace literal secrets in headers, environment, address and arguments by variables.

    A variable of ``env`` that has the same value gives its name: usually the shell has just expanded it.
    """
    variables = _Variables(server_id, env)
    replaced = dict(entry)
    for section in ("headers", "env"):
        table = entry.get(section)
        if isinstance(table, dict):
            replaced[section] = {
                name: variables.replace_value(name, value, section) if isinstance(value, str) else value
                for name, value in table.items()
            }
    url, arguments = entry.get("url"), entry.get("args")
    if isinstance(url, str):
        replaced["url"] = variables.replace_in_text(url)
    if isinstance(arguments, list):
        replaced["args"] = [
            variables.replace_in_text(argument, option) if isinstance(argument, str) else argument
            for option, argument in zip(["", *arguments], arguments, strict=False)
        ]
    return VariableEntry(replaced, variables.chosen)


def find_secret_parameter(url: str) -> str | None:
    """Return the name of a query parameter of a URL that holds a secret, if there is one."""
    return next((name for start, _, name in find_secret_spans(url) if url[start - 1] == "="), None)


class _Variables:
    """Chooses the variables of one entry."""

    def __init__(self, server_id: str, env: Mapping[str, str]) -> None:
        self._prefix = _variable_name(server_id)
        self._env = env
        self.chosen: dict[str, str] = {}

    def replace_value(self, name: str, value: str, section: str) -> str:
        """Return the value of a header or an environment variable, with a reference if it is a secret."""
        if "${" in value or not _SECRET_NAME.search(name):
            return value
        secret = value[_secret_start(value) :]
        if not secret or (section == "env" and len(secret) < _MIN_SECRET_CHARACTERS):
            return value
        own_name = name if section == "env" and _is_name(name) else None
        return value.removesuffix(secret) + self._add_reference(secret, name, own_name)

    def replace_in_text(self, text: str, option: JsonValue = "") -> str:
        """Return an address or argument with references. ``option`` is the argument before it."""
        if "${" in text:
            return text
        for start, end, name in reversed(
            [*find_secret_spans(text, option if isinstance(option, str) else "")]
        ):
            # docker run -e GITHUB_TOKEN=...: the name of an environment variable.
            own_name = name if name.isupper() and "_" in name and _is_name(name) else None
            text = text[:start] + self._add_reference(text[start:end], name, own_name) + text[end:]
        return text

    def _add_reference(self, secret: str, name: str, own_name: str | None) -> str:
        variable = self._choose(secret, name, own_name)
        self.chosen[variable] = secret
        return f"${{{variable}}}"

    def _choose(self, secret: str, name: str, own_name: str | None) -> str:
        if len(secret) >= _MIN_SECRET_CHARACTERS:
            for variable, value in self._env.items():
                if value == secret and _is_name(variable):
                    return variable
        if own_name is not None:
            return own_name
        suffix = "TOKEN" if name.lower() == "authorization" else _variable_name(name.removeprefix("X-"))
        variable, number = f"{self._prefix}_{suffix}", 1
        while self.chosen.get(variable, secret) != secret or self._env.get(variable, secret) != secret:
            number += 1
            variable = f"{self._prefix}_{suffix}_{number}"
        return variable


def find_secret_spans(text: str, option: str = "") -> Iterator[tuple[int, int, str]]:
    """Yield start, end and name of each secret in an address or argument."""
    assignment = _ASSIGNMENT.match(text)
    name, start = (assignment["name"], assignment.end()) if assignment else (option, 0)
    if _is_secret_name(name) and (assignment or option.startswith("-")):
        start += _secret_start(text[start:])
        if len(text) - start >= _MIN_SECRET_CHARACTERS and not text[start:].startswith(_OTHER_STARTS):
            yield start, len(text), name.lstrip("-")
    elif assignment:  # For example --header=Authorization: Bearer ..., or --url=https://...
        for first, last, inner in find_secret_spans(text[start:]):
            yield start + first, start + last, inner
    elif KNOWN_KEY.fullmatch(text):
        yield 0, len(text), "token"
    elif "://" in text:
        if password := _URL_PASSWORD.match(text):
            yield *password.span("secret"), "password"
        for first, last in find_path_tokens(text):
            yield first, last, "token"
        for parameter in _URL_PARAMETER.finditer(text):
            if _is_secret_name(parameter["name"]) and len(parameter["secret"]) >= _MIN_SECRET_CHARACTERS:
                yield *parameter.span("secret"), parameter["name"]


def _secret_start(text: str) -> int:
    """Return where the secret begins: after ``Bearer`` or another scheme."""
    scheme = _AUTH_SCHEME.match(text)
    return scheme.end() if scheme else 0


def _is_secret_name(name: str) -> bool:
    return _NAME_SEPARATORS.split(name)[-1].lower() in _SECRET_WORDS


def _variable_name(text: str) -> str:
    name = _NAME_SEPARATORS.sub("_", text).strip("_").upper()
    return f"_{name}" if name[:1].isdigit() else name


def _is_name(text: str) -> bool:
    return text.isidentifier() and text.isascii()
