"""Client authentication to MCP servers: OAuth discovery, client registration, sign-in and token refresh.

Connections use only the ``AuthProvider`` protocol exported here. May import ``net``, ``results``, ``config``,
``types`` and ``errors``. Start reading with ``oauth_provider`` (credentials of one server) and
``sign_in_flow`` (the authorization code flow); ``errors`` lists every failure.
"""

from toolyard.auth.provider import AuthProvider, Challenge, get_challenge_header, parse_challenge

__all__ = ["AuthProvider", "Challenge", "get_challenge_header", "parse_challenge"]
