"""Page of a tool, and forms generated from JSON Schema. Start with ``page``; chats use the forms, too."""
