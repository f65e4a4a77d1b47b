"""The gateway over Streamable HTTP: exchanges, both protocol eras, legacy sessions and event streams."""
