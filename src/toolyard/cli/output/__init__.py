"""Output of commands: for terminals, pipes and programs."""
