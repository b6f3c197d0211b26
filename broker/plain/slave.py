"""The slave's side of the default HA protocol: connects, stores the master's bytes, reports where its log ends.

The master's bytes must begin where this log ends; otherwise the slave disconnects and connects again. The caller
carries out outputs in their order. Source: ``DefaultHAClient`` of RocketMQ; here the first report is sent at once.
A core: it knows offsets and time, no log and no socket.
"""

from __future__ import annotations

from typing import Final

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.slave import NEVER, AppendLog, Connect, Disconnect, LogTrusted, Output, Send, SetConfirm, TruncateLog
from broker.ha.wire import Block, report

COPY_BYTES: Final = 16 << 20
"""Bytes in a second from which on the slave counts as copying old parts of the log: the master does not say it."""
_SPAN_NS: Final = 1_000_000_000
_DELETED: Final = (": what is between them is deleted there. Stop this broker, move its store's directory away, and "
                   "start it: it copies the log again")


class SlaveCore:
    """One slave and its log, through any number of connections."""

    def __init__(self, config: HaConfig, log_end: int, trusted_end: int | None = None) -> None:
        """``trusted_end``: the log after it may be damaged, and is cut and copied again once a master is connected. Not
        at 0, since a master sends only its last file to an empty log."""
        self._trusted_end = trusted_end or None
        self.log_end = log_end
        """End of the stored log, flushed if puts wait for a flush."""
        self._config = config
        self._received_end = log_end
        self._address: str | None = None
        self._connected = False
        self._connect_ns = NEVER
        self._read_ns = self._written_ns = 0
        self._reported = -1
        self.copies = False
        self._came_bytes = self._counted_ns = 0
        """Bytes received since the time in the second field."""

    def follow(self, address: str | None, now_ns: int) -> list[Output]:
        """Use this address of the master's HA port, at once if it is new; None: it is unknown."""
        if address == self._address:
            return []
        self._address = address
        outputs: list[Output] = []
        if self._connected:
            outputs += self._leave("the master's HA address changed", now_ns, 0)
        self._connect_ns = NEVER if address is None else now_ns
        return outputs + self.tick(now_ns)

    def connected(self, now_ns: int) -> list[Output]:
        self._connected = True
        self._read_ns = self._written_ns = now_ns
        self._reported = -1
        if self._trusted_end is not None:
            return [TruncateLog(self._trusted_end)]
        return self._report_what_is_stored(now_ns)

    def received(self, message: Block, now_ns: int) -> list[Output]:
        if not self._connected:
            return []
        self._read_ns = now_ns
        size = len(message.body)
        if self._received_end and message.offset != self._received_end:
            why = f"the master sent offset {message.offset}, this log ends at {self._received_end}"
            return self._leave(why + _DELETED if message.offset > self._received_end else why, now_ns,
                               self._config.reconnect_wait_ms)
        if not size:
            return []
        self._received_end = message.offset + size
        self._came_bytes += size
        self.copies = self.copies or self._came_bytes >= COPY_BYTES
        return [AppendLog(message.offset, message.body)]

    def stored(self, log_end: int, now_ns: int) -> list[Output]:
        """The log is stored up to ``log_end``, and flushed if puts wait for a flush."""
        if log_end == self.log_end:
            return []
        self.log_end = log_end
        return [SetConfirm(log_end), *(self._report_what_is_stored(now_ns) if self._connected else [])]

    def not_stored(self, log_end: int) -> None:
        """The log ends at ``log_end``; bytes received after that are lost. Either an ``AppendLog`` failed, and then
        ``closed`` comes next; or a new connection begins, and the last one ended within a record."""
        self._received_end = log_end

    def truncated(self, log_end: int | None, now_ns: int) -> list[Output]:
        """The log was cut at ``log_end``, to drop bytes not synced before this machine went down; None: it failed."""
        if log_end is None or log_end != self._trusted_end:
            return self._leave(f"the log could not be cut at {self._trusted_end}", now_ns,
                               self._config.truncate_retry_ms)
        self._trusted_end = None
        self.log_end = self._received_end = log_end
        return [LogTrusted(), *self._report_what_is_stored(now_ns)]

    def closed(self, now_ns: int) -> None:
        """The connection ended, or could not be made."""
        self._leave("", now_ns, self._config.reconnect_wait_ms)

    def tick(self, now_ns: int) -> list[Output]:
        if now_ns - self._counted_ns >= _SPAN_NS:
            self.copies = self._came_bytes >= COPY_BYTES
            self._came_bytes, self._counted_ns = 0, now_ns
        if not self._connected:
            if self._address is None or now_ns < self._connect_ns:
                return []
            self._connect_ns = NEVER  # ``connected`` or ``closed`` is next
            return [Connect(self._address)]
        if now_ns - self._read_ns >= self._config.housekeeping_interval_ms * NS_PER_MS:
            return self._leave(f"the master said nothing for {self._config.housekeeping_interval_ms} ms", now_ns,
                               self._config.reconnect_wait_ms)
        if self._reported >= 0 and now_ns - self._written_ns >= self._config.heartbeat_interval_ms * NS_PER_MS:
            return [self._report(now_ns)]
        return []

    def _report_what_is_stored(self, now_ns: int) -> list[Output]:
        """Report new parts of the log. The first report waits until all received bytes are stored, since the master
        begins to send there."""
        if self.log_end <= self._reported or (self._reported < 0 and self.log_end < self._received_end):
            return []
        return [self._report(now_ns)]

    def _report(self, now_ns: int) -> Send:
        self._reported, self._written_ns = self.log_end, now_ns
        return Send(report(self.log_end))

    def _leave(self, reason: str, now_ns: int, wait_ms: int) -> list[Output]:
        self._connected = False
        self._connect_ns = NEVER if self._address is None else now_ns + wait_ms * NS_PER_MS
        return [Disconnect(reason)] if reason else []
