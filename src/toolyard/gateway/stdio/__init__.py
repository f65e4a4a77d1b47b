"""The gateway over standard streams, for one local client."""
