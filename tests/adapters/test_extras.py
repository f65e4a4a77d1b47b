"""Each adapter needs its own extra, says so, and loads no other library."""

from __future__ import annotations

import subprocess
import sys

import pytest

ADAPTERS = {
    "openai": ("openai", "toolyard[openai]", {"anthropic", "pydantic_ai"}),
    "anthropic": ("anthropic", "toolyard[anthropic]", {"openai", "pydantic_ai"}),
    "pydantic_ai": ("pydantic_ai", "toolyard[pydantic-ai]", {"openai", "anthropic"}),
}


def python(code: str) -> str:
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("name", ADAPTERS)
def test_without_its_library_the_error_names_the_extra(name: str) -> None:
    library, extra, _ = ADAPTERS[name]
    code = f"""
import sys
sys.modules[{library!r}] = None
try:
    import toolyard.adapters.{name}
except ImportError as error:
    print(error)
"""
    assert f"pip install '{extra}'" in python(code)


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_loads_no_library_of_another(name: str) -> None:
    loaded_modules = set(python(f"import sys, toolyard.adapters.{name}; print(*sys.modules)").split())
    assert loaded_modules & ADAPTERS[name][2] == set()
