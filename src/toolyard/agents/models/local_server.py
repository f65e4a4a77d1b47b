"""Program: run llama.cpp's server for one model until standard input ends.

Run by path. The first input line is a JSON object with ``path`` of the weights (GGUF) and ``key``, which
requests must carry. The program prints one line: the address that it listens on, or ``error:`` and the
reason.
"""

# Imports nothing of Toolyard. It runs in a separate process, so that a crash of native code ends only that
# process.
import importlib
import json
import os
import sys
import threading
from typing import Any

MAX_PARALLEL_ANSWERS = 2
"""Concurrent answers; further requests are queued."""
MAX_ANSWER_TOKENS = 1024
"""Maximum tokens of an answer: small models tend to repeat themselves endlessly."""
REPEAT_PENALTY = 1.1
"""Factor that makes repeated words less likely."""


def main() -> None:
    request = json.loads(sys.stdin.readline())
    # The parent holds the other end of standard input; the system closes it when the parent dies, for
    # whatever reason.
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
    try:
        server = _start_server(request["path"], request["key"])
    except Exception as error:  # noqa: BLE001 - reported to the parent process
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
