"""Hands a consumer's messages to its user, one after the other, to one task or to many.

It keeps what is ready and hands it out; where it comes from is the consumer's business.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable

import trio

from broker.client.message import Received
from remoting.bodies.consumers import MessageQueue

logger = logging.getLogger("broker.client")

Handler = Callable[[Received], Awaitable[object]]
TURNS = 32
"""So many messages without a wait, then others on the loop have their turn."""


class Messages:
    """``async for`` over it, in one task or in several at once; it ends when the consumer is closed."""

    def __init__(self, queues: Callable[[], list[MessageQueue]]) -> None:
        self._ready: deque[Received] = deque()
        self._lot = trio.lowlevel.ParkingLot()
        self._queues = queues
        self._turns = 0
        self.closed = False

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this consumer reads now; the group shares them out."""
        return self._queues()

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Received:
        self._turns += 1
        if self._turns % TURNS:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        while (message := self.taken()) is None:
            if self.closed:
                raise StopAsyncIteration
            await self._lot.park()
        return message

    async def for_each(self, handler: Handler, *, tasks: int = 16) -> None:
        """Handle messages in so many tasks, until the consumer is closed or this is cancelled.

        What ``handler`` returns from is acknowledged, unless it did so itself or gave the message back; what it raises
        of (``Exception``) is logged, and given back.
        """
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(handle, self, handler)

    # --- for the consumer ------------------------------------------------------------------------------------

    def put(self, messages: Iterable[Received]) -> None:
        """Add messages for the reader."""
        self._ready.extend(messages)
        self._lot.unpark(count=len(self._ready))

    def taken(self) -> Received | None:
        """Take the next message that is ready; it is its user's now."""
        while self._ready:
            message = self._ready.popleft()
            if not message.settled:  # else another member has its queue now
                message.taken_at = trio.current_time()
                return message
        return None

    async def something(self) -> None:
        """Wait until a message is ready, or no more will come. A caller that then takes none calls ``put(())``."""
        while not self._ready and not self.closed:
            await self._lot.park()

    def close(self) -> None:
        """Forget what is ready; waiting callers learn that no more will come."""
        self.closed = True
        self._ready.clear()
        self._lot.unpark_all()


async def handle(messages: AsyncIterable[Received], handler: Handler) -> None:
    """Handle messages one after the other, as ``for_each`` says."""
    async for message in messages:
        try:
            await handler(message)
        except Exception:  # whatever the handler's defect is, other messages go on
            logger.exception("the handler failed for %r: its group gets it again", message)
            await message.retry_later()
        else:
            message.ack()
