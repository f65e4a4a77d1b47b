"""Language models: which are configured, and how to send requests to one.

``available_models.Models`` is the entry point. May import ``config``, ``net``, ``results``, ``transports``
and ``errors``. pydantic-ai is optional and slow to import, so only ``provider_errors``, ``model_stream``
and ``endpoint_http`` import it or its HTTP client at module level. They are loaded on first use.
"""
