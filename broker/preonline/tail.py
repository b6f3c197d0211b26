"""Copies the end of a master's log from a member of its group, by the default HA protocol.

The copy begins a little before the end of this log, so that bytes which both hold are compared first; if they differ,
nothing is copied. Implements ``SlaveCore`` of ``broker.ha.copying``. A core: it knows offsets and time, no log and no
socket.
"""

from __future__ import annotations

from typing import Final

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.slave import NEVER, AppendLog, Connect, Disconnect, Output, Send, SetConfirm
from broker.ha.wire import Block, report

COMPARED_BYTES: Final = 64 << 10
"""Bytes before the end that are compared, if the log has so many."""


class TailCore:
    """One copy, through any number of connections. ``done`` or ``refused`` ends it."""

    copies = True

    def __init__(self, config: HaConfig, end: int, known: bytes, *, begin: int, until: int) -> None:
        """``end``: end of this log; ``known``: its last bytes. ``begin``: begin of the member's log, where an empty log
        begins too; ``until``: the copy ends there."""
        self.end = end
        self.done = end >= until
        self.refused = ""
        """Reason why the log's end cannot be copied."""
        self.moved_ns = 0
        """Time when the last byte was received."""
        self._config, self._known, self._begin, self._until = config, known, begin, until
        self._address: str | None = None
        self._connected = False
        self._connect_ns = NEVER
        self._asked = self._expected = 0

    def follow(self, address: str | None, now_ns: int) -> list[Output]:
        self._address = address
        self._connect_ns = NEVER if address is None else now_ns
        return self.tick(now_ns)

    def connected(self, now_ns: int) -> list[Output]:
        """Ask for the log. A member sends only its last file to a slave that reports 0, so an empty log asks from 1 on.

        The byte at 0 is known to be 0: it is the highest of a message's size."""
        self._connected, self.moved_ns = True, now_ns
        self._asked = self._expected = (self.end - len(self._known) if self.end else self._begin) or 1
        return [Send(report(self._asked))]

    def received(self, message: Block, now_ns: int) -> list[Output]:
        if not self._connected or not len(message.body):
            return []
        if message.offset != self._expected:
            return self._leave(f"the member sent offset {message.offset}, expected {self._expected}", now_ns)
        self.moved_ns = now_ns
        body = memoryview(message.body)
        self._expected += len(body)
        ahead = self.end - message.offset
        if ahead > 0:
            both = min(ahead, len(body))
            at = len(self._known) - ahead
            if body[:both] != memoryview(self._known)[at:at + both]:
                self.refused = (
                    f"this log, which ends at {self.end}, and that of the member differ before that: empty one of the "
                    "two stores")
                return self._leave(self.refused, now_ns)
            body = body[both:]
            if not len(body):
                return []
        offset = self._expected - len(body)
        if not self.end and offset == 1:
            return [AppendLog(0, b"\0" + body)]
        return [AppendLog(offset, body)]

    def truncated(self, log_end: int | None, now_ns: int) -> list[Output]:
        """Do nothing: this copy never orders a cut."""
        return []

    def stored(self, log_end: int, now_ns: int) -> list[Output]:
        """The log is stored up to ``log_end``, and flushed if puts wait for a flush."""
        self.done = self.done or log_end >= self._until
        reports = [Send(report(log_end))] if self._connected and log_end > self._asked else []
        return [SetConfirm(log_end), *reports]

    def not_stored(self, log_end: int) -> None:
        """The log ends at ``log_end``; the next connection asks for lost bytes again."""
        if log_end != self.end:
            self._known = b""
        self.end = log_end

    def closed(self, now_ns: int) -> None:
        self._leave("", now_ns)

    def tick(self, now_ns: int) -> list[Output]:
        if self._connected or self._address is None or now_ns < self._connect_ns or self.done or self.refused:
            return []
        self._connect_ns = NEVER
        return [Connect(self._address)]

    def _leave(self, reason: str, now_ns: int) -> list[Output]:
        self._connected = False
        self._connect_ns = now_ns + self._config.reconnect_wait_ms * NS_PER_MS
        return [Disconnect(reason)] if reason else []
