"""What commands read: options, arguments of a tool, answers of a person, names to complete."""
