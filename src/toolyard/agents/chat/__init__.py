"""Chats: the loop over a model's requests, its tools through the one call path, its events kept."""
