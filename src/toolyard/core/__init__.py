"""Composition root: builds the services of a process from its settings."""
