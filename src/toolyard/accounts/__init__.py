"""Who is calling: modes, roles, sessions, API tokens."""

from toolyard.accounts.service import People

__all__ = ["People"]
