"""Native tools: they read files of the workspace and pages of the web, and change nothing."""
