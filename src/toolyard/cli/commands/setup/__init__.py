"""Commands that change configuration files: ours and those of other clients."""
