"""ASGI middleware: request guard, authentication before bodies, body limits."""
