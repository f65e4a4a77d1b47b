"""Servers that are child processes: the transport, the process, its supervisor and watchdog."""
