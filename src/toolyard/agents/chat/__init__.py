"""Chats: run turns of a model and its tools, and store everything as events.

``chats.ChatService`` is the entry point for interfaces (web app, terminal); ``turn.Turn`` holds the loop.
Tools are called only through ``tool_set.ToolSet``, so every call passes the same policy checks. Interfaces
implement the protocol ``tool_set.ToolSetSource``; this package does not import them.
"""
