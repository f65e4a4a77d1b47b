"""The tools of a yard for other frameworks, each in a module of its own that needs its extra."""
