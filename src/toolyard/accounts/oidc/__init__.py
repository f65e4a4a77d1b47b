"""Sign-in with an OpenID Connect provider: tokens, claims and provisioning of accounts.

Uses the HTTP client of ``auth``. Start reading with ``sign_in``, for browsers and for MCP clients that send
the provider's access tokens; ``provider`` has the HTTP requests.
"""
