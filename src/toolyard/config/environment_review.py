"""Environment variables of a server entry, prepared for the review of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from toolyard.types.visible_text import visible

__all__ = ["ReviewedVariable", "escape_line", "is_execution_variable", "review_environment"]

_SECRET_MASK = "***"
# Variables that let a configuration file run code of its choice: search paths, startup files, options of
# interpreters, and programs that other programs start. The review marks them.
_EXECUTION_NAMES = frozenset(
    (
        *("PATH", "PATHEXT", "HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "APPDATA"),
        *("BASH_ENV", "ENV", "SHELL", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "ZDOTDIR", "COMSPEC"),
        *("NODE_OPTIONS", "NODE_PATH", "RUBYOPT", "RUBYLIB", "GEM_HOME", "GEM_PATH", "BUNDLE_GEMFILE"),
        *("PERLLIB", "CLASSPATH", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
        *(
            "PHPRC",
            "PHP_INI_SCAN_DIR",
            "R_PROFILE",
            "R_PROFILE_USER",
            "R_LIBS",
            "JULIA_LOAD_PATH",
            "ERL_LIBS",
        ),
        *("GOFLAGS", "GOPROXY", "GOROOT", "GOPATH", "GOTOOLCHAIN", "RUSTC_WRAPPER", "RUSTUP_TOOLCHAIN"),
        *(
            "EDITOR",
            "VISUAL",
            "PAGER",
            "BROWSER",
            "SSH_ASKPASS",
            "DOCKER_HOST",
            "DOCKER_CONFIG",
            "VIRTUAL_ENV",
        ),
        *("OPENSSL_CONF", "GCONV_PATH", "LOCPATH", "MAKEFLAGS", "COREPACK_NPM_REGISTRY"),
    )
)
_EXECUTION_PREFIXES = (
    *("LD_", "DYLD_", "PYTHON", "PERL5", "GIT_", "NPM_CONFIG_", "YARN_", "PNPM_", "BUN_", "DENO_", "UV_"),
    *("PIP_", "PIPX_", "POETRY_", "CONDA_", "CARGO_", "LUA_", "BASH_FUNC_", "DOTNET_", "CORECLR_", "COR_"),
)
# Exceptions from the prefixes above, frequent in real configurations and without effect on which code runs.
_HARMLESS_NAMES = frozenset(
    ("PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "DOTNET_NOLOGO")
)
_SECRET_NAME = re.compile(
    r"(?i)token|secret|passw|pwd|api[_-]?key|access[_-]?key|private[_-]?key|credential|auth|signature|cookie"
    r"|jwt|(?:^|_)(?:key|pat|pass|dsn)$"
)
# Well-known prefixes of API keys and JWTs, or a long word of letters and digits that is not part of a path or
# URL.
_SECRET_VALUE = re.compile(
    r"(?:^|[^\w-])(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|AKIA|eyJ)[\w-]{6,}"
    r"|(?<![\w+=/.-])(?=[\w+=-]*[0-9])(?=[\w+=-]*[A-Za-z])[\w+=-]{24,}+(?![/.])"
)
_VARIABLE_REFERENCE = re.compile(r"\$\{(?:env:)?[A-Za-z_][A-Za-z0-9_]*\}")
_URL_USER_INFO = re.compile(r"(://)[^\s/?#@]+@")


@dataclass(frozen=True, slots=True)
class ReviewedVariable:
    """A variable for the process of a server.

    ``value`` is as written, or masked if it looks like a secret.
    """

    name: str
    value: str
    changes_execution: bool = False
    """Whether the variable can change which programs or code are run."""


def review_environment(env: Mapping[str, str]) -> tuple[ReviewedVariable, ...]:
    """Return the variables in order, with escapes for hidden characters and masked secrets."""
    return tuple(
        ReviewedVariable(
            escape_line(name), escape_line(_mask_secret(name, value)), is_execution_variable(name)
        )
        for name, value in env.items()
    )


def is_execution_variable(name: str) -> bool:
    """Return whether a variable with this name can change which programs or code are run."""
    upper = name.strip().upper()
    if upper in _HARMLESS_NAMES:
        return False
    return upper in _EXECUTION_NAMES or upper.startswith(_EXECUTION_PREFIXES)


def escape_line(text: str) -> str:
    """Return a text on one line, with escapes for hidden characters, tabs and line ends."""
    return visible(text, spaces=True).replace("\t", "\\t").replace("\n", "\\n")


def _mask_secret(name: str, value: str) -> str:
    # Execution variables are never masked: a malicious path could be written to look like a secret.
    if not is_execution_variable(name):
        literal = _VARIABLE_REFERENCE.sub("", value).strip()
        if literal and (_SECRET_NAME.search(name) or _SECRET_VALUE.search(literal)):
            return _SECRET_MASK
    return _URL_USER_INFO.sub(rf"\1{_SECRET_MASK}@", value)
