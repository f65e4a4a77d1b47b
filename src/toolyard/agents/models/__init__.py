"""Language models: which there are, and how one is asked."""
