"""Entries of a configuration file: servers, bundles, transports and OAuth, read and validated."""
