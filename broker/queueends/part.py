"""Asks a master where queues end of which this slave's log has no message, and answers that as a master.

A slave whose store was empty begins at its master's oldest file, or with ``syncFromLastFile`` at the newest. What its
queues lack in front of that is gone, but for the number of the next message: without it, this broker as master would
begin such a queue at 0 again, and a group that is further on would pass over what comes. So it asks once in its life a
master that offers this, and again if its log was emptied. Java's masters do not offer it, nor do its slaves ask.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import trio

from broker.journal import NEVER
from broker.part import Part
from broker.queueends.ends import GET_QUEUE_ENDS, QueueEnds, QueueEndsRequest, ends_before
from remoting.client import Client, checked
from remoting.command import Command, request, response
from remoting.errors import BodyError, RemotingError
from remoting.wakeup import Bell

if TYPE_CHECKING:
    from broker.journal import Journal
    from broker.standing import Role
    from remoting.connection import Connection
    from remoting.endpoint import Handler

logger = logging.getLogger("broker.sync")

TIMEOUT_MS: Final = 30_000
LOOK_NS: Final = 1_000_000_000
"""Between two looks whether there is something to ask, and between two questions that got no answer."""
SLICE: Final = 50
"""Queues that are begun before others get their turn: each may write a file of some megabytes."""


class QueueEndsPart(Part):
    """A slave's question, and a master's answer. ``run`` asks."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client, self._journal = client, journal
        self._master = ""
        self._told = False
        """A master has said it of the log that is here."""
        self._is_offered = False
        """By the master that it has now."""
        self._due_ns = 0
        self._bell = Bell()
        journal.was_cut.join("parts", self._was_cut)

    def handlers(self) -> Mapping[int, Handler]:
        return {GET_QUEUE_ENDS: self._answer}

    def _answer(self, _: Connection, command: Command) -> Command:
        """Answer 61051. Raises ``HeaderError`` for bad fields."""
        asked = QueueEndsRequest.from_ext(command.ext)
        return response(command, body=ends_before(self._journal.messages, asked.log_offset).to_json())

    def _was_cut(self, end: int) -> None:
        if not end:
            self._told = False
            self._journal.stir()

    def role_changed(self, role: Role) -> None:
        if role.master_address != self._master:
            self._master, self._is_offered, self._due_ns = role.master_address, False, 0

    def offered(self, codes: Collection[int]) -> None:
        """The master says which codes of our own it may be asked."""
        if self._is_offered != (GET_QUEUE_ENDS in codes):
            self._is_offered = not self._is_offered
            self._journal.stir()

    # --- asking ----------------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        return self._due_ns if self._is_offered and not self._told else NEVER

    def tick(self, now_ns: int) -> None:
        self._due_ns = now_ns + LOOK_NS
        if self._journal.end:  # else nobody can say yet where it begins
            self._told = not self._journal.begin
            if not self._told:
                self._bell.ring()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask, when there is something to ask."""
        task_status.started()
        while True:
            await self._bell.wait()
            master, begin = self._master, self._journal.begin
            if not master or self._told:
                continue
            try:
                await self._learn(master, begin)
            except (RemotingError, BodyError, OSError) as error:
                logger.warning("where queues end is not known", extra={"master": master, "why": str(error)})

    async def _learn(self, master: str, begin: int) -> None:
        """Raises ``RemotingError``, ``BodyError``; ``OSError`` where the disk takes no queue."""
        answer = await self._client.call(master, request(GET_QUEUE_ENDS, QueueEndsRequest(begin)), TIMEOUT_MS)
        ends = [*QueueEnds.from_json(checked(answer, master).body).by_queue().items()]
        for at in range(0, len(ends), SLICE):
            await trio.lowlevel.checkpoint()
            if self._master != master or self._journal.begin < begin:
                return  # it may put messages by itself by now, or its log was emptied
            self._journal.begin_queues(dict(ends[at : at + SLICE]))
        self._told = True
