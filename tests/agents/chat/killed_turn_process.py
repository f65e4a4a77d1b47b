"""A process that is killed in the middle of a turn.

Started as ``killed_turn_process.py DATA JOURNAL MODEL_URL SCRIPT``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.agents.chat.chat_harness import ME, open_chat_process


async def main() -> None:
    data, journal, url, script = sys.argv[1:]
    process = await open_chat_process(Path(data), Path(journal), url)
    chat = await process.chat()
    await process.chats.send(ME, chat.id, script)
    print(chat.id, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
