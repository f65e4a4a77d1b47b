"""Frozen data that the rooms pass to each other. No behaviour beyond what follows from the data itself."""
