"""Pages for one's own account: sign-in, tokens, approvals, clients to connect."""
