"""Sources of configuration: discovery of the file, JSON with positions, variables, layers and their merge.

Start with ``load.py``, which is the only module here that reads files.
"""
