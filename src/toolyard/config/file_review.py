"""Review of a configuration file before its approval: commands, addresses and variables it would use.

Values of environment variables are masked if they may be secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toolyard.config.configuration_diff import diff_configurations
from toolyard.config.data_dir import default_data_dir
from toolyard.config.file_approvals import FileApproval, hash_content, read_approvals, record_approval
from toolyard.config.file_io import decode_utf8, read_regular_file
from toolyard.config.sources.layers import layer_from_text, merge_layers
from toolyard.config.sources.load import find_project_folder
from toolyard.config.sources.server_variables import find_variable_names
from toolyard.config.value_checks import mask_user_info
from toolyard.errors import ConfigError, Problem
from toolyard.types.server import Configuration, HttpSpec, Server, StdioSpec
from toolyard.types.visible_text import visible

__all__ = [
    "Review",
    "ReviewedEnvVariable",
    "ReviewedServer",
    "approve_file",
    "escape_line",
    "is_execution_variable",
    "review_environment",
    "review_file",
]


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
        *(
            "GCONV_PATH",
            "LOCPATH",
            "MAKEFLAGS",
            "COREPACK_NPM_REGISTRY",
            "LESSOPEN",
            "GRADLE_OPTS",
            "MAVEN_OPTS",
        ),
        *("XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "LOCALAPPDATA", "CC", "CXX", "LD"),
        *("GOAUTH", "GOENV", "GOCACHE", "GOMODCACHE", "GOSUMDB", "GONOSUMDB", "GOINSECURE", "GOPRIVATE"),
        *("RUSTC", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", "RUSTUP_HOME", "BUNDLE_PATH", "BUNDLE_APP_CONFIG"),
        *("JULIA_DEPOT_PATH", "JULIA_PROJECT", "R_HOME", "R_ENVIRON", "R_ENVIRON_USER", "R_LIBS_USER"),
        *("R_LIBS_SITE", "ELIXIR_ERL_OPTIONS", "MIX_HOME", "MIX_ARCHIVES", "HEX_HOME", "COMPOSER_HOME"),
        *("JAVA_OPTS", "MAVEN_ARGS", "CLOUDSDK_PYTHON", "IPYTHONDIR", "JUPYTER_PATH", "JUPYTER_CONFIG_DIR"),
        *("CONTAINER_HOST", "CONTAINERS_CONF", "DOCKER_CONTEXT", "COMPOSE_FILE", "NIX_PATH", "NIX_CONFIG"),
        *("LESSCLOSE", "MANPAGER", "SUDO_ASKPASS", "RSYNC_RSH", "TAR_OPTIONS", "BASH_LOADABLES_PATH"),
        *("GTK_MODULES", "GTK_PATH", "GIO_MODULE_DIR", "GIO_EXTRA_MODULES", "QT_PLUGIN_PATH"),
        *("TCLLIBPATH", "GUILE_LOAD_PATH", "TF_CLI_CONFIG_FILE"),
        # Configuration files that name commands.
        *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "KUBECONFIG"),
        *("CHROME_BIN", "CHROME_PATH", "PLAYWRIGHT_BROWSERS_PATH", "PUPPETEER_EXECUTABLE_PATH"),
        # Whose certificates count, for packages that are downloaded.
        *("NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"),
    )
)
_EXECUTION_PREFIXES = (
    *("LD_", "DYLD_", "PYTHON", "PERL5", "GIT_", "NPM_CONFIG_", "YARN_", "PNPM_", "BUN_", "DENO_", "UV_"),
    *("PIP_", "PIPX_", "POETRY_", "CONDA_", "CARGO_", "LUA_", "BASH_FUNC_", "DOTNET_", "CORECLR_", "COR_"),
    *("ERL_", "OPENSSL_", "TS_NODE_", "NVM_", "VOLTA_", "MISE_", "ASDF_", "PYENV_", "RBENV_"),
    *("FNM_", "HATCH_", "PDM_", "RYE_", "PIXI_", "MAMBA_", "JBANG_", "COURSIER_"),
)
# Endings of names with the prefixes above that hold a secret, and no path or option: UV_PUBLISH_TOKEN.
_SECRET_ENDINGS = ("_TOKEN", "_AUTHTOKEN", "_PASSWORD")
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
_PATH_SEPARATOR = re.compile(r"""[\s=:;,&|<>()'"`]+""")
"""Characters around the paths in an option, a URL, a list of folders or a script."""
_URL_USER_INFO = re.compile(r"(://)[^\s/?#@]+@")


@dataclass(frozen=True, slots=True)
class ReviewedEnvVariable:
    """A variable for the process of a server.

    ``value`` is as written, or masked if it looks like a secret.
    """

    name: str
    value: str
    changes_execution: bool = False
    """Whether the variable can change which programs or code are run."""


def review_environment(env: Mapping[str, str]) -> tuple[ReviewedEnvVariable, ...]:
    """Return the variables in order, with escapes for hidden characters and masked secrets."""
    return tuple(
        ReviewedEnvVariable(
            escape_line(name), escape_line(_mask_secret(name, value)), is_execution_variable(name)
        )
        for name, value in env.items()
    )


def is_execution_variable(name: str) -> bool:
    """Return whether a variable with this name can change which programs or code are run."""
    upper = name.strip().upper()
    if upper in _HARMLESS_NAMES or upper.endswith(_SECRET_ENDINGS):
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


@dataclass(frozen=True, slots=True)
class ReviewedServer:
    """Effects of one server entry. Texts are as written, without expanded variables, and safe to print.

    ``env`` and ``headers`` contain names only; ``environment`` has the values, too, with secrets masked.
    ``variables`` are the variables of Toolyard's own environment that the entry would read.
    """

    id: str
    enabled: bool
    trust: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    address: str | None = None
    env: tuple[str, ...] = ()
    environment: tuple[ReviewedEnvVariable, ...] = ()
    project_code: tuple[str, ...] = ()
    """Files and folders of the project from which it would run code. They can change after the approval."""
    headers: tuple[str, ...] = ()
    key_file: str | None = None
    """Private key file on this machine that it would read to sign in."""
    variables: tuple[str, ...] = ()
    change: Literal["new", "changed", "same"] = "new"
    """Difference from the last approved content."""
    problem: str | None = None
    """Problem of its entry, because of which it would not be used."""


@dataclass(frozen=True, slots=True)
class Review:
    """Review of one file.

    Pass ``sha256`` to ``approve_file``, so that only the reviewed content is approved.
    """

    path: str
    sha256: str
    state: Literal["new", "changed", "approved"]
    servers: tuple[ReviewedServer, ...]
    removed: tuple[str, ...] = ()
    """Ids of servers in the last approved content that are no longer in the file."""


def review_file(path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None) -> Review:
    """Review a file without using it. Raises ConfigError if it is missing or invalid."""
    file, content = _read_file(path)
    return _build_review(file, content, read_approvals(_resolve_review_data_dir(data_dir)).find(file))


def approve_file(
    path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None, *, sha256: str | None = None
) -> Review:
    """Store the content of a file as approved, and return its review.

    ``sha256`` is the hash from the review that the user saw. Raises ConfigError if the file has changed
    since, is missing or invalid, and OSError if the approval cannot be stored.
    """
    file, content = _read_file(path)
    content_hash = hash_content(content)
    review = _build_review(file, content, FileApproval(content_hash, decode_utf8(content, str(file))))
    if sha256 is not None and sha256 != content_hash:
        message = "the file changed after it was shown; nothing was approved"
        raise ConfigError(
            [Problem(message, file=str(file), hint="run `toolyard approve` again to review the new content")]
        )
    record_approval(file, content, _resolve_review_data_dir(data_dir))
    return review


def _read_file(path: str | os.PathLike[str]) -> tuple[Path, bytes]:
    file = Path(os.path.abspath(path))
    return file, read_regular_file(file, missing_hint="check the path")


def _resolve_review_data_dir(data_dir: str | os.PathLike[str] | None) -> Path:
    return default_data_dir() if data_dir is None else Path(os.path.abspath(data_dir))


def _parse_unexpanded(text: str, name: str) -> Configuration:
    """Parse and check a file without expanding variables, as for every layer that is not approved."""
    layer = layer_from_text(text, "file", name=name, approved=False)
    return merge_layers([layer], {}, unapproved_reason="not approved", complete=False)


def _build_review(file: Path, content: bytes, last_approval: FileApproval | None) -> Review:
    """Compare the content of a file with the last approved one. Raises ConfigError if it is invalid."""
    project, sha256 = find_project_folder(file), hash_content(content)
    configuration = _parse_unexpanded(decode_utf8(content, str(file)), str(file))
    before = Configuration()
    # An older version may have accepted content that is invalid now. Then every server counts as new.
    with suppress(ConfigError):
        if last_approval is not None:
            before = _parse_unexpanded(last_approval.content, str(file))
    changes = diff_configurations(before, configuration)
    servers = tuple(
        _review_server(
            server,
            "new" if server.id in changes.added else "changed" if server.id in changes.changed else "same",
            project,
        )
        for server in configuration.servers.values()
    )
    if last_approval is None:
        return Review(str(file), sha256, "new", servers)
    state = "approved" if last_approval.sha256 == sha256 else "changed"
    return Review(str(file), sha256, state, servers, changes.removed)


def _review_server(
    server: Server, change: Literal["new", "changed", "same"], project: Path
) -> ReviewedServer:
    spec = server.transport
    # The missing approval disables every server, with a reason. One disabled by its own entry has no reason.
    enabled = server.enabled or server.disabled_reason is not None
    variables = tuple(
        dict.fromkeys(name for text in _expandable_texts(server) for name in find_variable_names(text))
    )
    problem = escape_line(server.problem_text) if server.problems else None
    reviewed = ReviewedServer(
        server.id, enabled, server.trust.value, variables=variables, change=change, problem=problem
    )
    if isinstance(spec, HttpSpec):
        key_file = None if server.oauth is None else server.oauth.private_key_file
        return replace(
            reviewed,
            address=escape_line(mask_user_info(spec.url)),
            headers=_escape_names(spec.headers),
            key_file=None if key_file is None else escape_line(key_file),
        )
    if not spec.command:
        return reviewed  # An invalid entry, which starts nothing.
    return replace(
        reviewed,
        command=tuple(map(escape_line, (spec.command, *spec.args))),
        cwd=None if spec.cwd is None else escape_line(spec.cwd),
        env=_escape_names(spec.env),
        environment=review_environment(spec.env),
        project_code=tuple(dict.fromkeys(map(escape_line, _find_project_code(spec, project)))),
    )


def _find_project_code(spec: StdioSpec, project: Path) -> Iterator[str]:
    """Yield the paths inside the project that occur in the command, working directory and environment."""
    start = project if spec.cwd is None else project / os.path.expanduser(spec.cwd)
    if spec.cwd is not None and _is_inside(start, project):
        yield spec.cwd
    if _is_inside(project / os.path.expanduser(spec.command), project):
        yield spec.command
    for word in spec.args:
        # A word may be a script, and a short option is followed by its value: -r./hook.rb
        option = word[2:] if word.startswith("-") else ""
        for text in dict.fromkeys((word, option, *_PATH_SEPARATOR.split(word))):
            if text and _is_inside(start / os.path.expanduser(text), project):
                yield text
    for name, value in spec.env.items():
        # For example PYTHONPATH=./lib or NODE_OPTIONS=--require=./hook.js.
        if is_execution_variable(name):
            for text in _PATH_SEPARATOR.split(value):
                if text and _is_inside(start / os.path.expanduser(text), project):
                    yield text


def _is_inside(path: Path, project: Path) -> bool:
    try:
        # Compare resolved paths: a link outside the project may lead into it. A word that is not the path of
        # an existing file is an ordinary argument.
        real = os.path.realpath(path)
        return os.path.exists(real) and Path(real).is_relative_to(os.path.realpath(project))
    except (OSError, ValueError):
        return False


def _expandable_texts(server: Server) -> Iterator[str]:
    spec, oauth = server.transport, server.oauth
    if isinstance(spec, HttpSpec):
        yield spec.url
        yield from spec.headers.values()
    else:
        yield from (spec.command, *spec.args, *spec.env.values(), spec.cwd or "")
    if oauth is not None:
        yield from filter(
            None, (oauth.client_id, oauth.client_secret, oauth.resource, oauth.private_key_file)
        )
        yield oauth.issuer or ""


def _escape_names(texts: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(map(escape_line, texts))
