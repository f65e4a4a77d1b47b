"""``toolyard call``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

SERVERS = Path(__file__).parent.parent / "servers"


def test_words_become_what_the_schema_says(yard: Cli) -> None:
    words = ["text=7", "whole=7", "share=1.5", "flag=yes", "names=a", "names=b", "sizes=[1, 2]", "box.wide=3"]
    ran = yard("call", "odd_typed", *words, 'more:={"deep": [null]}', "other=8")
    assert json.loads(ran.out) == {
        "text": "7",
        "whole": 7,
        "share": 1.5,
        "flag": True,
        "names": ["a", "b"],
        "sizes": [1, 2],
        "box": {"wide": 3},
        "more": {"deep": [None]},
        "other": "8",
    }


def test_a_json_object_goes_as_it_is(yard: Cli) -> None:
    given = '{"whole": "seven", "emoji": "🎉"}'
    assert json.loads(yard("call", "odd_typed", given).out) == json.loads(given)
    assert json.loads(yard("call", "odd_typed", "-", input=given).out) == json.loads(given)


def test_raw_prints_what_the_server_sent(yard: Cli) -> None:
    assert yard("call", "odd_fail", "--raw").json == {
        "content": [{"type": "text", "text": "it went wrong"}],
        "isError": True,
    }


def test_a_person_gets_all_of_a_long_answer(yard: Cli) -> None:
    assert yard("call", "odd_long").out == "x" * 200_000 + "\n"


def test_a_pipe_gets_a_text_byte_for_byte(yard: Cli) -> None:
    assert yard("call", "odd_screen").out == "\x1b[2Jcleared\tyour screen\n"


def test_media_are_described_and_written_only_where_asked(yard: Cli) -> None:
    told = yard("call", "odd_image")
    assert told.out == "[image: image/png, 28 bytes]\n"
    assert told.err == "note: media were not saved\nhint: use --save DIR to write them to files\n"
    for number in (1, 2):
        ran = yard("call", "odd_image", "--save", "media")
        assert ran.out == f"[image: image/png, 28 bytes] -> media/odd_image-{number}.png\n"
        assert (yard.home / f"media/odd_image-{number}.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_is_described_as_it_is_for_whoever_calls(cli: Cli) -> None:
    server = {"command": sys.executable, "args": [str(SERVERS / "results_server.py")]}
    cli.write({"mcpServers": {"r": server}})
    cli.agents("## Reader\n---\ndescription: Reads.\n---\nRead.\n")
    given = ["call", "r_media", "mime=application/zip", "data=UEsDBA=="]
    for words in ([], ["--agent", "reader"]):
        ran = cli(*given, *words, "--save", "media")
        assert ran.out.startswith("[file file:///made/up: application/zip, 4 bytes] -> media/")
    assert not (cli.data / "results.db").exists()


def test_a_folder_that_cannot_be_written_is_a_clear_error(yard: Cli) -> None:
    (yard.home / "file").write_text("")
    ran = yard("call", "odd_image", "--save", "file/media")
    assert ran.code == 2
    assert ran.err.startswith("error: --save file/media: ")


def test_json_has_text_structure_and_media(yard: Cli) -> None:
    ran = yard("call", "odd_image", "--json", "--save", "media")
    assert ran.json["media"] == [
        {"kind": "image", "mime": "image/png", "bytes": 28, "uri": None, "file": "media/odd_image-1.png"}
    ]


def test_only_the_server_of_the_tool_is_started(
    cli: Cli, odd: dict[str, Any], demo: dict[str, Any], starts: Path
) -> None:
    cli.write({"mcpServers": {"odd": odd, "demo": demo}})
    assert cli("call", "demo_weekday", "date=2026-07-28").out == "2026-07-28 is a Tuesday.\n"
    assert not starts.exists()


def test_a_tool_of_a_program_is_called_without_what_only_addresses_need(yard: Cli) -> None:
    ran = yard.run([sys.executable, "-X", "importtime", *yard.words("call", "odd_typed", "text=7")[1:]])
    loaded = {line.split()[-1] for line in ran.err.splitlines()}
    assert json.loads(ran.out) == {"text": "7"}
    assert "toolyard.yard" in loaded
    assert not {"aiohttp", "yarl", "urllib.request", "sqlalchemy", "pydantic"} & loaded


def test_progress_is_told_on_standard_error_in_lines_when_verbose(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": demo}})
    ran = cli("-v", "call", "demo_count", "to=3", "pause=0.01")
    assert ran.out == "Counted to 3.\n"
    assert [line for line in ran.err.splitlines() if line.startswith("progress: ")] == [
        "progress: 1/3 1 of 3",
        "progress: 2/3 2 of 3",
        "progress: 3/3 3 of 3",
    ]
    assert "DEBUG toolyard.calls: demo/count: ok in" in ran.err
    assert cli("call", "demo_count", "to=3", "pause=0.01").err == ""


def test_a_write_tool_is_refused_where_nobody_can_be_asked(yard: Cli) -> None:
    ran = yard("call", "odd_write", TOOLYARD_WRITE_TOOLS="ask")
    assert ran.code == 4
    assert ran.err == (
        "error: 'odd_write' needs an approval, and nobody is available to ask\n"
        "hint: call it at a terminal, or set write_tools to 'allow'\n"
    )
    assert yard("call", "odd_write", TOOLYARD_WRITE_TOOLS="allow").code == 0


def test_an_untrusted_answer_is_fenced(cli: Cli, odd: dict[str, Any]) -> None:
    server = {"trust": "untrusted", "allowTools": ["typed"], "transport": {"type": "stdio", **odd}}
    cli.write({"servers": {"odd": server}})
    ran = cli("call", "odd_typed", "text=hi", TOOLYARD_WRITE_TOOLS="allow")
    assert ran.code == 0
    assert '{"text": "hi"}' in ran.out
    assert len(ran.lines) > 1
