"""Resets and deletions: a master says them in the log, every replica follows them, and they are answered then.

A slave copies positions seconds later, so one that becomes master in between would know nothing of either. Records that
are refused are said again as soon as this broker may write, in a later epoch as well, in order, and in front of any
other message: the first one of a topic made again stands behind the record that the former is gone. Who follows another
master says them no more: the positions are that one's then. Which records to follow: ``broker.pop.gone``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from broker.ha.acks import PutStatus
from broker.offsets.part import OffsetsPart
from broker.part import Shared
from broker.pop import progress
from broker.pop.gone import PATH, Gone, KeptGone, Name
from broker.pop.progress import PopProgress
from broker.puts import PutResult
from broker.store.errors import WrongStore
from broker.store.files import Files
from broker.store.tables import load
from remoting.record import Message

logger = logging.getLogger("broker")

TOLD_MS: Final = 3_000
"""A reset or a deletion is answered after so long in any case; administrators wait 5 s."""
CallsBack = Callable[[Callable[[], None]], None]
"""Takes a function, and calls it back, perhaps at once."""


async def _in_time(calls_back: CallsBack) -> bool:
    """Wait until it calls back. False: it does not in ``TOLD_MS``."""
    called = trio.Event()
    calls_back(called.set)
    with trio.move_on_after(TOLD_MS / 1e3) as scope:
        await called.wait()
    return not scope.cancelled_caught


class Changes:
    """Hears records by ``progress``. ``file.run`` must be running."""

    def __init__(self, shared: Shared, heard: PopProgress, positions: OffsetsPart) -> None:
        journal = shared.journal
        self._puts, self._stir, self._positions = shared.puts, journal.stir, positions
        self._store_host, self._wall_ms = shared.config.store_host, shared.wall_ms
        self._gone = Gone(_followed_below(shared.files, journal.end))
        self.file = shared.table_file(self._gone.kept, path=PATH)
        if not shared.files.exists(PATH):
            self.file.changed()  # the next process must not follow records of an earlier version
        self._writes_open = False
        self._unsaid = dict[int, Message]()
        """Records that are not in the log yet, by their number in the order in which they were said."""
        self._said, self._refusal = 0, PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        self._under_way, self._unsure, self._waiting = 0, 0, dict[Callable[[], None], None]()
        """Puts of them in flight, how many were not stored as the mode demands, and the callers of ``when_said``."""
        self.in_time: Callable[[CallsBack], Awaitable[bool]] = _in_time
        """Waits for ``when_said``; False: for too long."""
        heard.gone, heard.reset = self._hears_gone, self._hears_reset

    # --- said by a master ------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether there is something to say again."""
        return bool(self._unsaid) and self._writes_open

    def opened(self) -> None:
        """Writes are about to open. Call ``say_all`` then, or at the next tick."""
        self._writes_open = True
        self._demand()

    def closed(self) -> None:
        """Writes are closed: what was not said has to wait. It is gone here all the same, and replicas do not know."""
        self._writes_open = False
        self._demand()

    def follows(self) -> None:
        """This broker is no master any more: what it did not say stays unsaid."""
        self._gone.follows()
        if self._unsaid:
            self._unsaid.clear()
            self._unsure += 1
            self._demand()
            self._call_waiting()

    def say_gone(self, topic: str, group: str) -> None:
        """The topic, or the group, is deleted here; the other one is ""."""
        self._say((topic, group), progress.gone(topic, group, self._store_host, self._wall_ms()))

    def say_reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """The group goes on at ``offset``."""
        self._say(_reset(topic, group, queue_id),
                  progress.reset(topic, group, queue_id, offset, self._store_host, self._wall_ms()))

    def _say(self, name: Name, message: Message) -> None:
        self._gone.say(name)
        self._stir()
        self._unsaid[self._said] = message
        self._said += 1
        self.say_all()

    def say_all(self, *, wait_store_ok: bool = True) -> None:
        """Put what is not in the log yet, if this broker may write."""
        if not self.is_due:
            return
        said, self._unsaid = self._unsaid, {}

        def done(result: PutResult) -> None:
            self._under_way -= 1
            if not result.puts:
                self._unsaid, self._refusal = dict(sorted((said | self._unsaid).items())), result
            elif result.status is not PutStatus.PUT_OK or not wait_store_ok:
                self._unsure += 1
            self._demand()
            self._call_waiting()

        self._under_way += 1
        # held, it would stand behind messages that do not wait for their storing
        self._puts.put(list(said.values()), done, wait_store_ok=wait_store_ok, hold=False)

    def _demand(self) -> None:
        self._puts.first = self._say_first if self.is_due else None

    def _say_first(self, wait_store_ok: bool) -> PutResult | None:
        """Put what was refused before a message is stored, as the message is put. Returns why that is refused: this is
        refused still."""
        self.say_all(wait_store_ok=wait_store_ok)
        return self._refusal if self.is_due else None

    def _call_waiting(self) -> None:
        if not self._unsaid and not self._under_way:
            calls, self._waiting = self._waiting, {}
            for call in calls:
                call()

    def when_said(self, call: Callable[[], None]) -> None:
        """Call back, perhaps at once, when no record for the replicas is on its way."""
        if self._unsaid or self._under_way:
            self._waiting[call] = None
        else:
            call()

    async def told(self) -> str:
        """Return when the records that were said are stored as the group's mode demands: "", or why they may not be."""
        unsure = self._unsure
        if await self.in_time(self.when_said) and self._unsure == unsure:
            return ""
        return "not all replicas that must know of it are sure to know"

    # --- followed by every replica ---------------------------------------------------------------------------

    def _hears_gone(self, at: int, topic: str, group: str) -> None:
        self._follow(at, (topic, group), lambda: self._positions.heard_gone(topic, group))

    def _hears_reset(self, at: int, topic: str, group: str, queue_id: int, offset: int) -> None:
        self._follow(at, _reset(topic, group, queue_id), lambda: self._positions.heard_reset(
            topic, group, queue_id, offset))

    def _follow(self, at: int, name: Name, change: Callable[[], None]) -> None:
        if self._gone.hear(at, name):
            change()

        def saved() -> None:
            self._gone.saved(at)
            self.file.changed()

        self._positions.when_written(saved)

    def cut(self, end: int) -> None:
        """The log was cut there."""
        self._gone.cut(end)
        self.file.changed()

    def needs_from(self, offset: int) -> int:
        """Return from where on the next process must hear the log, if it has heard it up to ``offset``."""
        return self._gone.needs_from(offset)


def _reset(topic: str, group: str, queue_id: int) -> Name:
    """A name for the record of a reset: no topic's or group's deletion has it."""
    return f"{topic}@{group}", str(queue_id)


def _followed_below(files: Files, log_end: int) -> int:
    """Return below which offset of the log all records were followed already."""
    try:
        kept = load(files, KeptGone, PATH).log_offset
    except WrongStore as error:
        logger.warning("which topics and groups are gone is read from the log again: %s", error)
        return 0
    return log_end if kept < 0 else min(kept, log_end)
