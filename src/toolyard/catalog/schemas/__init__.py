"""Conversion of tool definitions into the formats of the model providers.

Imports ``types`` only, and never modifies the server's schema. Start reading at
``provider_schema.build_provider_tool``: it runs ``normalize``, ``schema_merge`` and one converter per
provider.
"""
