"""What happens when everything goes wrong: `make faults` runs it all and writes docs/reliability.md."""
