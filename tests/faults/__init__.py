"""Fault injection: `make faults` runs all cases and writes docs/reliability.md."""
