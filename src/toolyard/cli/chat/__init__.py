"""A chat in the terminal: the same chats as in the web app, over the same loop."""
