"""Program: run llama.cpp's server for one model until standard input ends.

Run by path. The first input line is a JSON object with ``path`` of the weights (GGUF) and ``key``, which
requests must carry. The program prints one line: the address that it listens on, or ``error:`` and the
reason.
"""

# Imports nothing of Toolyard. It runs in a separate process, so that a crash of native code ends only that
# process.
import importlib
import json
import mmap
import os
import struct
import sys
import threading
from typing import Any

MAX_PARALLEL_ANSWERS = 2
"""Concurrent answers; further requests are queued."""
MAX_ANSWER_TOKENS = 1024
"""Maximum tokens of an answer: small models tend to repeat themselves endlessly."""
REPEAT_PENALTY = 1.1
"""Factor that makes repeated words less likely."""
_TEMPLATE_KEY = b"tokenizer.chat_template"
_GGUF_STRING = 8
_MAX_HEADER_BYTES = 64 * 2**20
_TOOLS_TEMPLATE = """\
{%- set has_instructions = messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' }}
{{- messages[0].content if has_instructions else 'You are a helpful assistant.' }}
{%- if tools %}
{{- '\\n\\nYou have these tools:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nTo call a tool, answer with its name and arguments as JSON:\\n<tool_call>\\n' }}
{{- '{"name": <name>, "arguments": <arguments>}\\n</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for message in messages[1:] if has_instructions else messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""Template for models that were trained with ChatML and whose own template leaves out tools."""


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
    template = read_chat_template(path)
    if "<|im_start|>" in template and "tools" not in template:
        params.chat_template = _TOOLS_TEMPLATE
    # All threads wait for the slowest one. With a thread for each processor, another busy program makes
    # answers twenty times as slow.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) // 2)
    params.warmup = False
    params.model_alias = {"local"}
    params.ui = False
    params.offline = True
    return xllamacpp.Server(params)


def read_chat_template(path: str) -> str:
    """Return the template in a file of weights, or an empty text if it is not found."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(_TEMPLATE_KEY, 0, _MAX_HEADER_BYTES) + len(_TEMPLATE_KEY)
        if at < len(_TEMPLATE_KEY):
            return ""
        kind, length = struct.unpack_from("<IQ", data, at)
        return data[at + 12 : at + 12 + length].decode(errors="replace") if kind == _GGUF_STRING else ""


if __name__ == "__main__":
    main()
