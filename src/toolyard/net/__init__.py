"""The one HTTP session, TLS context and address guard that every outgoing request uses."""

from toolyard.net.answer import Answer, NotHttp
from toolyard.net.guard import AddressRefused, Guard, is_private
from toolyard.net.session import Net, same_origin

__all__ = ["AddressRefused", "Answer", "Guard", "Net", "NotHttp", "is_private", "same_origin"]
