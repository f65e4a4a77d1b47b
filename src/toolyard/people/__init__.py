"""Who is calling: modes, roles, sessions, API tokens."""

from toolyard.people.people import People

__all__ = ["People"]
