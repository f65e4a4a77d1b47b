"""What people paste at the end of a sign-in: the address that their browser ended on, or the code alone."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

__all__ = ["WrongPaste", "read_pasted"]

_LONGEST = 20_000


class WrongPaste(ValueError):
    """What was pasted does not end this sign-in. Its words say why; nothing was used up."""


def read_pasted(text: str, state: str, *, needs_address: bool) -> dict[str, str]:
    """The parameters that a pasted text stands for. ``needs_address``: a code alone proves too little.

    Raises WrongPaste.
    """
    text = text.strip().strip("<>\"'")
    if not text:
        raise WrongPaste("nothing was pasted")
    if len(text) > _LONGEST or any(char.isspace() or not char.isprintable() for char in text):
        raise WrongPaste("that is neither an address nor a code")
    if "://" in text or "state=" in text:
        return _of_address(text, state)
    if needs_address:
        raise WrongPaste("the code alone is not enough here: paste the whole address")
    return {"code": text, "state": state}


def _of_address(text: str, state: str) -> dict[str, str]:
    try:
        query = urlsplit(text).query if "://" in text else text.lstrip("?")
        found = dict(parse_qsl(query, keep_blank_values=True))
    except ValueError:
        raise WrongPaste("that address cannot be read") from None
    if "state" not in found:
        raise WrongPaste("that is not the address at which the sign-in ended")
    if found["state"] != state:
        raise WrongPaste("that address belongs to another sign-in")
    return found
