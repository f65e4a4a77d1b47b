"""Pages for a person's own account: sign-in, API tokens, approvals, and connecting MCP clients."""
