"""Content of chats that is sent as files: results of calls, and attachments of messages."""
