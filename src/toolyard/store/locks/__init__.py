"""Locks between tasks, processes and replicas."""
