"""Pages of chats: turns, the tool console, live updates and actions."""
