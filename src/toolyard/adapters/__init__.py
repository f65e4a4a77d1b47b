"""Adapters that offer a yard's tools to other frameworks.

Each framework has one module, which needs the extra of the same name (``pip install 'toolyard[openai]'``).
Adapters use only the public library, ``toolyard.library`` and ``toolyard.types``. They share
``parallel_calls``.
"""
