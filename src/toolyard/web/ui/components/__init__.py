"""Helpers that all pages share: rendering, forms, flash messages, formatting, paging and error pages."""
