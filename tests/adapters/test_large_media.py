"""A picture that is kept under a handle goes to no model: its provider would refuse the whole request."""

from __future__ import annotations

import pytest

from toolyard.adapters.anthropic import _block
from toolyard.adapters.calling import Call
from toolyard.adapters.openai import _responses_output
from toolyard.model.result import Media, Result, Text

SMALL = Media("image", "image/png", "aGk=", 2)
LARGE = Media("image", "image/png", "aGk=", 6_000_000, handle="r0", digest="00")


@pytest.mark.parametrize(("media", "sent"), [(SMALL, True), (LARGE, False)], ids=["small", "large"])
def test_only_what_fits_is_sent(media: Media, sent: bool) -> None:
    result = Result(None, "text", blocks=(Text("text"), media))
    assert ("aGk=" in str(_responses_output(result))) is sent
    assert ("aGk=" in str(_block(Call("1", "t", "{}"), result))) is sent
