"""Who we are to a server. The seam that connections use; flows and storage stand beside it."""

from toolyard.auth.provider import AuthProvider, Challenge, get_challenge_header, parse_challenge

__all__ = ["AuthProvider", "Challenge", "get_challenge_header", "parse_challenge"]
