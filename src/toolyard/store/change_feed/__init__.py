"""Notifications about changed rows, between the processes that share a database.

Start with ``signals``, which delivers messages by channel and receives those of other processes;
``chat_event_waiters`` serves clients that follow a chat.
"""
