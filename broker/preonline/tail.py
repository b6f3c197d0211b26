"""The end of a master's log, copied from a member of its group by the default HA protocol.

The member sends what a slave asks for: from a little in front of the end here, so that the bytes which both hold are
compared first. Where they differ nothing is copied. Implements ``broker.ha.copying``'s ``SlaveCore``.
This module knows offsets and time; it owns no log and no socket.
"""

from __future__ import annotations

from typing import Final

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.slave import NEVER, AppendLog, Connect, Disconnect, Output, Send, SetConfirm
from broker.ha.wire import Block, report

COMPARED_BYTES: Final = 64 << 10
"""So much in front of the end is compared, if there is as much."""


class TailCore:
    """One copy, through any number of connections. ``done`` or ``refused`` ends it."""

    copies = True

    def __init__(self, config: HaConfig, end: int, known: bytes, *, begin: int, until: int) -> None:
        """``end``: of the log here; ``known``: its last bytes. ``begin``: of the member's log, where an empty one
        begins; ``until``: all below is wanted."""
        self.end = end
        self.done = end >= until
        self.refused = ""
        """Why this cannot be copied."""
        self.moved_ns = 0
        """When the last byte came."""
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
        """Ask. Who asks from 0 on is given the last file alone, so the first byte is not asked for: it belongs to the
        size of a message, which no message is large enough to need."""
        self._connected, self.moved_ns = True, now_ns
        self._asked = self._expected = (self.end - len(self._known) if self.end else self._begin) or 1
        return [Send(report(self._asked))]

    def received(self, message: Block, now_ns: int) -> list[Output]:
        if not self._connected or not len(message.body):
            return []
        if message.offset != self._expected:
            return self._leave(f"the member sent offset {message.offset}, {self._expected} was asked for", now_ns)
        self.moved_ns = now_ns
        body = memoryview(message.body)
        self._expected += len(body)
        ahead = self.end - message.offset
        if ahead > 0:
            both = min(ahead, len(body))
            at = len(self._known) - ahead
            if body[:both] != memoryview(self._known)[at:at + both]:
                self.refused = (
                    f"the log here and that of the member are not the same in front of {self.end}, where this one ends:"
                    " one of the two stores must be made anew")
                return self._leave(self.refused, now_ns)
            body = body[both:]
            if not len(body):
                return []
        offset = self._expected - len(body)
        if not self.end and offset == 1:
            return [AppendLog(0, b"\0" + body)]
        return [AppendLog(offset, body)]

    def truncated(self, log_end: int | None, now_ns: int) -> list[Output]:
        """Nothing is ever cut here."""
        return []

    def stored(self, log_end: int, now_ns: int) -> list[Output]:
        """It is done when that is flushed, too, where puts wait for their flush."""
        self.done = self.done or log_end >= self._until
        reports = [Send(report(log_end))] if self._connected and log_end > self._asked else []
        return [SetConfirm(log_end), *reports]

    def not_stored(self, log_end: int) -> None:
        """The log ends there, whatever came behind: the next connection asks for it again."""
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
