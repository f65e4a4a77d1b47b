"""Language models: which are configured, and how to send requests to one.

``available_models.Models`` is the entry point. May import ``config``, ``results``, ``transports`` and
``errors``. pydantic-ai is optional and slow to import, so only ``provider_errors`` and ``response_stream``
import it at module level, and ``library_loader`` loads them on first use.
"""
