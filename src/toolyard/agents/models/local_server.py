"""A program: llama.cpp's server for one model, which ends when its standard input does.

Run by path. The first line on its input is a JSON object: ``path`` of the weights (GGUF) and ``key``, which
requests must carry. It prints one line: the address that it listens on, or ``error:`` and why there is none.
"""

# Nothing of Toolyard: it runs in a process of its own, so that a fault of native code ends only that.
import importlib
import json
import os
import sys
import threading
from typing import Any

MAX_PARALLEL_ANSWERS = 2
"""Answers at the same time; more of them wait."""
MAX_ANSWER_TOKENS = 1024
"""Tokens of an answer: small models like to repeat themselves without end."""
REPEAT_PENALTY = 1.1
"""By how much a word that was said becomes less likely."""


def main() -> None:
    wanted = json.loads(sys.stdin.readline())
    # Whoever started us holds the other end, and the system closes it when they are gone, whatever the way.
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
    try:
        server = _start_server(wanted["path"], wanted["key"])
    except Exception as error:  # noqa: BLE001 - it is told to whoever started us
        _print_line(f"error: {error}")
        return
    _print_line(server.listening_address)
    threading.Event().wait()


def _exit_at_end_of_input() -> None:
    sys.stdin.read()
    os._exit(0)


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _start_server(path: str, key: str) -> Any:
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.n_parallel = MAX_PARALLEL_ANSWERS
    params.kv_unified = True
    params.n_predict = MAX_ANSWER_TOKENS
    params.sampling.penalty_repeat = REPEAT_PENALTY
    params.use_jinja = True
    params.warmup = False
    params.model_alias = {"local"}
    params.ui = False
    params.offline = True
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
