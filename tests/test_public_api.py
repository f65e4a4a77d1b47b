"""The public surface is a decision: the exports of ``toolyard``, and the cost of importing it."""

from __future__ import annotations

import importlib.metadata
import inspect
import subprocess
import sys

import pytest

import toolyard

EXPORTED_NAMES = [
    "AgentsError",
    "BadAnswer",
    "CallTimeout",
    "Callbacks",
    "ConfigError",
    "HttpStatus",
    "OutcomeUnknown",
    "Result",
    "RpcError",
    "ServerError",
    "SessionLost",
    "SignInNeeded",
    "State",
    "Status",
    "Throttled",
    "Timeouts",
    "Tool",
    "ToolRefused",
    "Toolyard",
    "ToolyardError",
    "Unreachable",
    "discover_config_path",
    "load_config",
    "parse_config",
]

HEAVY = (
    *("aiohttp", "asyncio", "click", "difflib", "json", "logging", "orjson", "platformdirs", "pydantic"),
    *("rich", "sqlite3", "ssl", "uvloop", "watchfiles", "yaml"),
)


def python(code: str) -> str:
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_these_names_are_exported_and_no_others() -> None:
    assert toolyard.__all__ == EXPORTED_NAMES
    assert len(set(EXPORTED_NAMES)) == len(EXPORTED_NAMES)


@pytest.mark.parametrize("name", EXPORTED_NAMES)
def test_every_name_can_be_imported_alone_and_is_documented(name: str) -> None:
    assert python(f"from toolyard import {name}; print({name}.__name__)") == name
    docstring = inspect.getdoc(getattr(toolyard, name))
    assert docstring
    # The generated docstring of a dataclass is its signature, which does not count.
    assert not docstring.startswith(f"{name}(")


@pytest.mark.parametrize(
    "name", [name for name in EXPORTED_NAMES if inspect.isclass(getattr(toolyard, name))]
)
def test_every_exported_public_method_is_documented(name: str) -> None:
    kind = getattr(toolyard, name)
    if issubclass(kind, str):
        return  # Members of an enum are documented below each member.
    for attribute, value in vars(kind).items():
        if not attribute.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
            assert inspect.getdoc(value), f"{name}.{attribute}"


def test_only_exported_names_exist() -> None:
    with pytest.raises(AttributeError, match="module 'toolyard' has no attribute 'nonsense'"):
        toolyard.nonsense  # noqa: B018
    with pytest.raises(ImportError):
        exec("from toolyard import nonsense")


def test_names_that_are_loaded_on_first_use_are_shown_by_dir() -> None:
    code = "import toolyard; print(*dir(toolyard))"
    stdout = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {*EXPORTED_NAMES, "__version__"} <= set(stdout.split())


def test_every_error_is_a_toolyard_error() -> None:
    for name in EXPORTED_NAMES:
        public_object = getattr(toolyard, name)
        if inspect.isclass(public_object) and issubclass(public_object, Exception):
            assert issubclass(public_object, toolyard.ToolyardError)


def test_importing_the_package_loads_no_heavy_library_and_no_room() -> None:
    code = "import sys; before = set(sys.modules); import toolyard; print(*(set(sys.modules) - before))"
    loaded_modules = python(code).split()
    assert {name.split(".")[0] for name in loaded_modules} & set(HEAVY) == set()
    assert [name for name in loaded_modules if name.startswith("toolyard.")] == []


@pytest.mark.parametrize(
    ("use", "unneeded_modules"),
    [
        ("load_config", ("aiohttp", "asyncio", "click", "rich", "yaml", "sqlite3")),
        ("Unreachable", ("aiohttp", "asyncio", "click", "rich", "yaml", "sqlite3")),
        (
            "Toolyard",
            ("aiohttp", "click", "rich", "urllib.request", "yaml", "yarl", "watchfiles", "pydantic"),
        ),
    ],
)
def test_a_name_loads_only_the_modules_it_needs(use: str, unneeded_modules: tuple[str, ...]) -> None:
    loaded_modules = set(python(f"import sys; from toolyard import {use}; print(*sys.modules)").split())
    assert loaded_modules & set(unneeded_modules) == set()


def test_the_version_is_that_of_the_installed_package() -> None:
    assert toolyard.__version__ == importlib.metadata.version("toolyard")


def test_the_package_says_that_it_is_typed() -> None:
    from importlib.resources import files

    assert files("toolyard").joinpath("py.typed").is_file()
