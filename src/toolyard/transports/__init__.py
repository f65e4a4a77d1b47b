"""Bytes to and from one server: one transport a file, all behind one small Protocol."""
