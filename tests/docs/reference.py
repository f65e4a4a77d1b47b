"""``python -m tests.docs.reference``: writes docs/reference and docs/packages.svg from the code, so that they
cannot drift.

A test compares the files with the output of this program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import click
from fastapi import FastAPI
from tests.conftest import ROOT
from tests.docs import package_diagram

from toolyard.cli.app import COMMAND_SECTIONS, app
from toolyard.config.settings.table import SETTINGS, Settings
from toolyard.web import api
from toolyard.web.api.openapi import build_openapi_document
from toolyard.web.routes import RouteIndex

FOLDER = ROOT / "docs/reference"
NOTE = "<!-- Written by `make reference` from the code; a test fails when it is out of date. -->"


def cell(text: object) -> str:
    return " ".join(str(text).replace("|", "\\|").split())


# Settings.


def settings() -> str:
    lines = [
        "# Settings",
        "",
        NOTE,
        "",
        "In `toolyard.toml` in the data directory under the name that stands here, or as the variable. "
        "`toolyard settings` shows each with its value and where that comes from; secrets are never shown."
        " A secret can also come from a file: name it in the variable with `_FILE` at its end, such as"
        " `TOOLYARD_SECRET_KEY_FILE`, or give it to systemd as a credential of the setting's name.",
        "",
        "| name | variable | default | description |",
        "|---|---|---|---|",
    ]
    defaults = {value.setting.name: value.shown for value in Settings().table()}
    for each in SETTINGS:
        default = defaults[each.name] or "(none)"
        secret = " Secret." if each.secret else ""
        about = cell(each.description)
        lines.append(f"| `{each.name}` | `{each.variable}` | {cell(default)} | {about}.{secret} |")
    return "\n".join([*lines, ""])


# Commands.


def commands() -> str:
    lines = ["# Commands", "", NOTE, ""]
    root = click.Context(app, info_name="toolyard", **app.context_settings)
    for title, names in COMMAND_SECTIONS.items():
        lines += [f"## {title}", ""]
        for name in names:
            found_command = app.get_command(root, name)
            assert found_command is not None
            lines += list(command(found_command, click.Context(found_command, root, info_name=name), "###"))
    return "\n".join(lines)


def command(one: click.Command, context: click.Context, head: str) -> Iterator[str]:
    yield from (f"{head} `{context.command_path}`", "", "```text", help_of(one, context), "```", "")
    if isinstance(one, click.Group):
        for name in one.list_commands(context):
            inner = one.get_command(context, name)
            assert inner is not None
            yield from command(inner, click.Context(inner, context, info_name=name), f"{head}#")


def help_of(one: click.Command, context: click.Context) -> str:
    formatter = click.HelpFormatter(width=100)
    one.format_help(context, formatter)
    return formatter.getvalue().rstrip()


# The API.


def routes() -> str:
    app = FastAPI(routes=[RouteIndex(api.router.build())])
    openapi_document = build_openapi_document(app)
    lines = ["# The API, route by route", "", NOTE, "", "See [the API](../api.md) for how to use it.", ""]
    lines += list(statuses(openapi_document))
    for path, methods in openapi_document["paths"].items():
        for method, route in methods.items():
            lines += [f"## `{method.upper()} {path}`", "", route.get("summary", ""), ""]
            if about := route.get("description"):
                lines += [cell(about), ""]
            lines += list(parameters(route)) + list(body(route, openapi_document)) + list(answers(route))
    return "\n".join(lines)


def statuses(spec: dict[str, Any]) -> Iterator[str]:
    """Return the meaning of the error statuses, once for all routes."""
    descriptions: dict[str, str] = {}
    for methods in spec["paths"].values():
        for route in methods.values():
            for status, each in route["responses"].items():
                if status >= "3":
                    descriptions.setdefault(status, cell(each.get("description", "")))
    yield from (
        "| status | |",
        "|---|---|",
        *(f"| {status} | {descriptions[status]} |" for status in sorted(descriptions)),
        "",
    )


def parameters(route: dict[str, Any]) -> Iterator[str]:
    parameters = [each for each in route.get("parameters", []) if each["in"] in ("path", "query")]
    if parameters:
        yield from ("| parameter | in | type | |", "|---|---|---|---|")
        for each in parameters:
            requirement = "needed" if each.get("required") else ""
            about = "; ".join(filter(None, (requirement, cell(each.get("description", "")))))
            yield f"| `{each['name']}` | {each['in']} | {kind(each['schema'])} | {about} |"
        yield ""


def body(route: dict[str, Any], spec: dict[str, Any]) -> Iterator[str]:
    content = route.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return
    schema = resolve_reference(content["schema"], spec)
    yield from ("| field | type | |", "|---|---|---|")
    for name, field in schema.get("properties", {}).items():
        requirement = "needed" if name in schema.get("required", ()) else ""
        about = "; ".join(filter(None, (requirement, cell(field.get("description", "")))))
        yield f"| `{name}` | {kind(field)} | {about} |"
    yield ""


def answers(route: dict[str, Any]) -> Iterator[str]:
    yield from (f"Answers {', '.join(route['responses'])}.", "")


def resolve_reference(schema: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return spec["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def kind(schema: dict[str, Any]) -> str:
    """Return the type of a value in a word or two."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


PAGES = {"settings.md": settings, "commands.md": commands, "api.md": routes}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (FOLDER / name).write_text(re.sub(r"[ \t]+\n", "\n", write()))
    package_diagram.FILE.write_text(package_diagram.picture())


if __name__ == "__main__":
    main()
