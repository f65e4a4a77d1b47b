"""Accounts: sign-in modes, roles, browser sessions, API tokens and sign-in with an identity provider.

May import ``config``, ``net``, ``auth``, ``types`` and ``errors``, and ``store`` for type checking. Start
reading with ``service``, which authenticates every request; ``oidc`` holds OpenID Connect.
"""

from toolyard.accounts.service import AccountService

__all__ = ["AccountService"]
