"""Input of commands: options, tool arguments, answers, and shell completion."""
