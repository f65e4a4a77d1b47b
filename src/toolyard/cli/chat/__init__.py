"""Chat in the terminal: the same chats as in the web app, run by the same turns."""
