"""Settings of the platform: their table, value types, sources and the models that an operator lists."""
