"""Repositories: one module for the rows of each kind of record."""
