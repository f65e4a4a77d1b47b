"""Notifications about changed rows, between the processes that share a database.

Start with ``signals``, which delivers messages by channel. ``postgres_listener`` and ``file_polling`` receive
those of other processes; ``chat_event_waiters`` and ``event_tail`` serve clients that follow a chat.
"""
