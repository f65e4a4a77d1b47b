"""Who is calling: modes, roles, sessions, API tokens."""

from toolyard.accounts.service import AccountService

__all__ = ["AccountService"]
