"""Servers that an admin entered, and each person's instances of them: the rules about both."""
