"""Asks a master where queues end in front of this slave's log, and answers that as a master.

A slave whose store was empty begins at its master's oldest file, or with ``syncFromLastFile`` at the newest. Of each
queue it needs the number of the next message. Else this broker as master would begin the queue at 0 again, if it copied
no message of it, and a group that is further on would pass over new messages. So, where controllers rule, it asks
before its log has a byte; and in each life it asks again if its log begins above 0. Java's masters do not offer the
answer, and its slaves do not ask.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import trio

from broker.journal import NEVER
from broker.part import Part
from broker.queueends.beginning import Beginning
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
"""Time between two looks for something to ask, and between two questions that got no answer."""
SLICE: Final = 50
"""Queues that are begun before other tasks get their turn: each may write a file of some megabytes."""
LOOKED_AT: Final = 100
"""Messages or queues that are looked at before other tasks get their turn."""


class QueueEndsPart(Part):
    """A slave's question, and a master's answer. ``run`` asks."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client, self._journal = client, journal
        self._master = ""
        self._beginning = Beginning()
        self._told = False
        """True: a master told the queue ends for the log that is here."""
        self._is_offered = False
        """True: the present master may be asked."""
        self._due_ns = 0
        self._bell = Bell()
        self._asking = trio.CancelScope()
        self._problem = ""
        journal.was_cut.join("parts", self._was_cut)

    def handlers(self) -> Mapping[int, Handler]:
        return {GET_QUEUE_ENDS: self._answer}

    async def _answer(self, _: Connection, command: Command) -> Command:
        """Answer 61051. Raises ``HeaderError`` for bad fields."""
        asked = QueueEndsRequest.from_ext(command.ext)
        journal, answer = self._journal, QueueEnds()
        for number, (queue, end) in enumerate(
                ends_before(journal.messages, journal.visible.offset, asked.log_offset)):
            answer.note(queue, end)
            if number % LOOKED_AT == 0:
                await trio.lowlevel.checkpoint()
        return response(command, body=answer.to_json())

    def _was_cut(self, end: int) -> None:
        if not end:
            self._told = False
            self._beginning.forget()
            self._journal.stir()

    def role_changed(self, role: Role) -> None:
        if role.master_address != self._master:
            self._master, self._is_offered, self._due_ns = role.master_address, False, 0
            self._beginning.follow(self._master)
            self._asking.cancel()

    def offered(self, codes: Collection[int]) -> None:
        self._is_offered = GET_QUEUE_ENDS in codes
        if self._beginning.offered(self._is_offered):
            self._look()

    def _look(self) -> None:
        self._due_ns = 0
        self._journal.stir()

    def may_begin(self, offset: int) -> bool:
        """Return whether the log, which is empty, may begin there now. If not, ask again soon."""
        journal = self._journal
        if not offset and journal.messages.queues():
            journal.truncate(0, everything=True)  # the queues were begun for a log that never came
        before = self._beginning.to_ask
        may = self._beginning.may(offset)
        if self._beginning.to_ask != before:
            self._look()
        return may

    # --- asking ----------------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        if self._beginning.waits_for_disk:
            return 0
        return self._due_ns if self._is_offered and not self._told else NEVER

    def tick(self, now_ns: int) -> None:
        if self._beginning.waits_for_disk and self._journal.queues_flushed:
            self._beginning.on_disk()
        if now_ns < self._due_ns or not self._is_offered:
            return
        self._due_ns = now_ns + LOOK_NS
        if self._journal.end:  # an empty log has no beginning yet
            self._told = self._beginning.is_known(self._journal.begin)
        if self._to_ask() is not None:
            self._bell.ring()

    def _to_ask(self) -> int | None:
        """Return the begin of a log about whose queue ends the master is to be asked; None: there is nothing to ask."""
        if not self._journal.end:
            return self._beginning.to_ask
        return None if self._told else self._journal.begin

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask when there is something to ask, until cancelled."""
        task_status.started()
        while True:
            await self._bell.wait()
            begin = self._to_ask()
            if not self._master or begin is None:
                continue
            problem = ""
            try:
                with trio.CancelScope() as self._asking:
                    await self._learn(self._master, begin)
            except (RemotingError, BodyError, OSError) as error:
                problem = str(error)
            if problem and problem != self._problem:
                logger.warning("the master's queue ends are not known, and are asked for again",
                               extra={"master": self._master, "why": problem})
            self._problem = problem

    async def _learn(self, master: str, begin: int) -> None:
        """Ask the master, and begin queues. Raises ``RemotingError``, ``BodyError``; ``OSError``: none can be."""
        journal = self._journal
        answer = await self._client.call(master, request(GET_QUEUE_ENDS, QueueEndsRequest(begin)), TIMEOUT_MS)
        ends = [*QueueEnds.from_json(checked(answer, master).body).by_queue().items()]
        was_empty = not journal.end
        if was_empty and self._to_ask() == begin and journal.messages.queues():
            journal.truncate(0, everything=True)  # the queues were begun for another beginning, and may end later now
        for at in range(0, len(ends), SLICE):
            await trio.lowlevel.checkpoint()
            if self._is_other(begin, was_empty=was_empty):
                return  # this broker may be master by now, or its log was emptied
            journal.begin_queues(dict(ends[at : at + SLICE]))
        if was_empty:
            if not self._is_other(begin, was_empty=True):
                self._beginning.told(begin)
                journal.stir()
        else:
            self._told = True

    def _is_other(self, begin: int, *, was_empty: bool) -> bool:
        """Return whether the log is not the one any more for which the master was asked."""
        if was_empty:
            return bool(self._journal.end) or self._to_ask() != begin
        return self._journal.begin < begin
