"""Notifications about changed rows, between the processes that share a database."""
