"""Words that others hold: collected from the code, to be compared with ``golden/``.

``python -m tests.published.published_names`` writes the files again. A change in them is a change of the
API, of stored data, of the command line or of the library: it belongs in the changelog, and old data
must still be read.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import click
from fastapi import FastAPI
from tests.conftest import ROOT

import toolyard
from toolyard.auth.storage import OAuthClient, OAuthGrant, PendingSignIn
from toolyard.cli.app import app
from toolyard.config.file_review import Review
from toolyard.config.settings import model_entries
from toolyard.config.settings.table import SETTINGS, Settings
from toolyard.errors import Problem, ToolyardError
from toolyard.types.chat import Kind, TurnOutcome, TurnState
from toolyard.types.tool import Media
from toolyard.web import api
from toolyard.web.api.openapi import build_openapi_document
from toolyard.web.http_server.metrics import Metrics
from toolyard.web.problem_details import find_problem_kind
from toolyard.web.routes import RouteIndex
from toolyard.web.servers.status import ServerRecord
from toolyard.web.ui.chat.example_chat import example_events

GOLDEN = ROOT / "tests/published/golden"
SOURCE = ROOT / "src/toolyard"
PROSE_KEYS = {"description", "summary", "title", "examples", "example"}
"""Keys of the OpenAPI document whose texts may change."""


def without_prose(value: Any, *, properties: bool = False) -> Any:
    """Return JSON without the texts of the OpenAPI document. Names of properties stay, whatever they are.

    Lists of required properties are sorted: their order has no meaning.
    """
    if isinstance(value, dict):
        return {
            key: sorted(each)
            if key == "required" and isinstance(each, list)
            else without_prose(each, properties=key == "properties")
            for key, each in value.items()
            if properties or key not in PROSE_KEYS
        }
    if isinstance(value, list):
        return [without_prose(each) for each in value]
    return value


def api_document() -> Any:
    """The OpenAPI document."""
    application = FastAPI(routes=[RouteIndex(api.router.build())])
    return without_prose(build_openapi_document(application))


def plain(value: object) -> Any:
    """Return a default as JSON."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list | frozenset | set):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return f"<{type(value).__name__}>"


def settings() -> Any:
    """Name, variable, default and secrecy of each setting, and the keys of a model's table."""
    defaults = {value.setting.name: value.shown for value in Settings().table()}
    rows = {
        each.name: [each.variable, plain(defaults[each.name]), each.secret, list(each.also)]
        for each in SETTINGS
    }
    return {"settings": rows, "model keys": sorted(model_entries.MODEL_KEY_TYPES)}


def commands() -> Any:
    """The tree of commands with their options."""

    def walk(command: click.Command, context: click.Context) -> Any:
        parameters = [
            {
                "names": [*each.opts, *each.secondary_opts],
                "type": each.type.name,
                "choices": list(each.type.choices) if isinstance(each.type, click.Choice) else None,
                "variable": plain(each.envvar),
                "required": each.required,
                "multiple": each.multiple,
                "count": each.nargs,
                "flag": isinstance(each, click.Option) and each.is_flag,
            }
            for each in command.params
        ]
        operation: dict[str, Any] = {"parameters": sorted(parameters, key=lambda each: each["names"])}
        if isinstance(command, click.Group):
            operation["commands"] = {
                name: walk(inner, click.Context(inner, context, info_name=name))
                for name in sorted(command.list_commands(context))
                if (inner := command.get_command(context, name)) is not None
            }
        return operation

    return walk(app, click.Context(app, info_name="toolyard", **app.context_settings))


def load_all_modules() -> None:
    """Import every module, so that all subclasses are known."""
    for module_info in pkgutil.walk_packages(toolyard.__path__, "toolyard."):
        if not re.search(r"\.(__main__|versions|env|migrations)\b|_server$|_worker$", module_info.name):
            importlib.import_module(module_info.name)


def errors() -> Any:
    """For each error: the classes above it, exit code, word for programs, status and URN."""
    load_all_modules()

    def walk(error: type[ToolyardError]) -> Iterator[type[ToolyardError]]:
        yield error
        for each in error.__subclasses__():
            yield from walk(each)

    rows: dict[str, Any] = {}
    for error in sorted(set(walk(ToolyardError)), key=lambda each: each.__name__):
        if error.__name__.startswith("_") or not error.__module__.startswith("toolyard."):
            continue
        wire = find_problem_kind(error.__new__(error))
        row = [error.exit_code, getattr(error, "kind", None), wire.status, wire.type_suffix]
        rows.setdefault(error.__name__, []).append(row)
    return {name: sorted(row_item, key=str) for name, row_item in rows.items()}


def records() -> Any:
    """Field names of records that are stored or shown by field name."""
    records = {
        "Client": OAuthClient,
        "Grant": OAuthGrant,
        "Media": Media,
        "Pending": PendingSignIn,
        "Problem": Problem,
        "Review": Review,
        "ServerRecord": ServerRecord,
    }
    return {label: [each.name for each in dataclasses.fields(record)] for label, record in records.items()}


def events() -> Any:
    """Kinds of a chat's events with the keys of their bodies, and why turns end."""
    bodies: dict[str, set[str]] = {kind.value: set() for kind in Kind}
    for event in example_events(0.0):
        bodies[event.kind.value] |= set(event.body)
    return {
        "kinds": {kind: sorted(keys) for kind, keys in bodies.items()},
        "endings": [each.value for each in TurnOutcome],
        "states": [each.value for each in TurnState],
    }


def metrics() -> Any:
    """Families and labels."""
    metrics_text = Metrics(lambda: ()).render().decode()
    return sorted(line for line in metrics_text.splitlines() if line.startswith("# TYPE"))


def python_surface() -> Any:
    """Exported names with the signatures of their public methods."""
    names_by_kind: dict[str, Any] = {}
    for name in toolyard.__all__:
        value = getattr(toolyard, name)
        if inspect.isclass(value) and not issubclass(value, Exception | Enum):
            members = {
                each: signature(getattr(value, each))
                for each in dir(value)
                if not each.startswith("_") and callable(getattr(value, each))
            }
            fields = (
                [each.name for each in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
            )
            names_by_kind[name] = {"methods": members, "fields": fields}
        elif inspect.isfunction(value):
            names_by_kind[name] = signature(value)
        elif inspect.isclass(value) and issubclass(value, Enum):
            names_by_kind[name] = {each.name: each.value for each in value}
        else:
            names_by_kind[name] = signature(value)
    for module in ("anthropic", "openai", "pydantic_ai"):
        adapter = importlib.import_module(f"toolyard.adapters.{module}")
        names_by_kind[f"adapters.{module}"] = {
            name: signature(getattr(adapter, name)) for name in adapter.__all__
        }
    return names_by_kind


def signature(value: Any) -> Any:
    """Return the parameters of a callable: name and kind, without annotations and defaults."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return None
    return [f"{each.kind.name.lower()} {each.name}" for each in parameters]


LITERAL = re.compile(
    r"toolyard[-_./:][\w./:-]*|toolyard://\S*|\S*TOOLYARD_\S*|toolyard( [a-z]+)+ \d|io\.\S+/\S+|urn:\S+"
)
"""Literals with our name in them: cookies, channels, markers, purposes of keys, ``_meta`` keys, URIs."""


def literals() -> Any:
    """Our name in strings, without module paths and documentation; actions and purposes by their calls."""
    names: set[str] = set()
    purposes: set[str] = set()
    loggers: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
                if LITERAL.fullmatch(text) and not is_module(text):
                    names.add(text)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    if node.func.attr in {"derive", "derive_key"}:
                        purposes.add(first.value)
                    elif node.func.attr == "getLogger":
                        loggers.add(first.value)
    return {"ours": sorted(names - loggers), "purposes": sorted(purposes), "loggers": sorted(loggers)}


def is_module(text: str) -> bool:
    """Return whether a dotted text names a module."""
    head, _, rest = text.partition(".")
    if head != "toolyard" or not re.fullmatch(r"[\w.]+", rest):
        return False
    candidate = SOURCE.joinpath(*rest.split("."))
    return candidate.is_dir() or candidate.with_suffix(".py").exists()


def form_words() -> Any:
    """Names of fields and values of buttons in the forms of the pages."""
    buttons: set[str] = set()
    names: set[str] = set()
    for path in sorted((SOURCE / "web").rglob("*.html")):
        text = path.read_text("utf-8")
        buttons |= set(re.findall(r'name="do"\s+value="([\w.:-]+)"', text))
        names |= set(re.findall(r'<(?:input|select|textarea|button)[^>]*\bname="([\w.:-]+)"', text))
    return {"buttons": sorted(buttons), "names": sorted(names)}


def side_files() -> Any:
    """Tables of the SQLite files beside the database."""
    from toolyard.catalog.sqlite_storage import SqliteListingStorage
    from toolyard.results.sqlite_store import SqliteResultStore

    names_by_kind: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("catalogue.db", touch_catalogue), ("results.db", touch_results)):
            path = Path(folder) / name
            make(path, SqliteListingStorage if name == "catalogue.db" else SqliteResultStore)
            names_by_kind[name] = sqlite_schema(path)
    return names_by_kind


def touch_catalogue(path: Path, kind: Callable[[Path], Any]) -> None:
    """Make the tables of the catalogue by a first read."""
    import asyncio

    async def work() -> None:
        storage = kind(path)
        await storage.load([("server", "hash", "scope")])
        await storage.close()

    asyncio.run(work())


def touch_results(path: Path, kind: Callable[[Path], Any]) -> None:
    """Make the tables of the results by a first read."""
    import asyncio

    asyncio.run(kind(path).find("nobody", "r_1"))


def sqlite_schema(path: Path) -> Any:
    """Return the statements that made the tables, without layout."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return {"version": version, **{name: " ".join((sql or "").split()) for name, sql in rows}}


SECTIONS: dict[str, Callable[[], Any]] = {
    "api": api_document,
    "settings": settings,
    "commands": commands,
    "errors": errors,
    "records": records,
    "events": events,
    "metrics": metrics,
    "python": python_surface,
    "literals": literals,
    "forms": form_words,
    "side_files": side_files,
}


def as_text(value: Any) -> str:
    """Return a section as it stands in its file."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every section that needs no database; the tests write those that do."""
    GOLDEN.mkdir(exist_ok=True)
    for name, make in SECTIONS.items():
        (GOLDEN / f"{name}.json").write_text(as_text(make()), "utf-8")


if __name__ == "__main__":
    main()
