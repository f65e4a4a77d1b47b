"""One definition as each model provider wants it. The raw schema is read, never altered."""
