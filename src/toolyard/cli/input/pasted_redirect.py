"""What people paste at the end of a sign-in: the address that their browser ended on, or the code alone."""

from __future__ import annotations

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.errors import AnswerRejected

__all__ = ["PastedRedirectError", "parse_pasted_redirect"]

_MAX_PASTED_CHARACTERS = 20_000


class PastedRedirectError(ValueError):
    """What was pasted does not end this sign-in. Its words say why; nothing was used up."""


def parse_pasted_redirect(
    text: str, state: str, redirect_uri: str, *, needs_address: bool
) -> AuthorizationResponse:
    """Return the authorization response that a pasted text stands for. ``needs_address``: a code or a query
    alone does not prove at which redirect address the browser arrived.

    Raises WrongPaste.
    """
    text = text.strip().strip("<>\"'")
    if not text:
        raise PastedRedirectError("nothing was pasted")
    if len(text) > _MAX_PASTED_CHARACTERS or any(char.isspace() or not char.isprintable() for char in text):
        raise PastedRedirectError("that is neither an address nor a code")
    if "://" in text:
        return _parse_redirect_url(text, state)
    if needs_address:
        raise PastedRedirectError("the code alone is not enough here: paste the whole address")
    if "state=" in text:
        return _parse_redirect_url(f"{redirect_uri}?{text.lstrip('?')}", state)
    return AuthorizationResponse(redirect_uri, {"code": text, "state": state})


def _parse_redirect_url(url: str, state: str) -> AuthorizationResponse:
    try:
        response = AuthorizationResponse.parse(url)
    except AnswerRejected as error:
        raise PastedRedirectError(error.cause) from None
    if "state" not in response.params:
        raise PastedRedirectError("that is not the address at which the sign-in ended")
    if response.params["state"] != state:
        raise PastedRedirectError("that address belongs to another sign-in")
    return response
