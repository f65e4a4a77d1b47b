"""Worker processes: untrusted work runs in a program that can be killed and that cannot open files.

``worker_process`` starts a worker and sends it requests. ``worker_protocol`` is the loop of the program, and
uses only the standard library. Imports only ``transports``, for the environment of a child process.
"""
