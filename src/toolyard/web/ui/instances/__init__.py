"""Pages about a person's instances: overview, form, detail and OAuth sign-in."""
