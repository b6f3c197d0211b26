"""The master's side of the default HA protocol: what to send to each slave, and how much of the log each holds.

A slave reports where its log ends, but not its identity. If a second connection comes from a host, an older one from
there that has been silent since may be the same slave's, and is not counted. An offset beyond the log's end is no
acknowledgement (apache/rocketmq#3015). Sources: ``DefaultHAConnection`` and ``DefaultHAService`` of RocketMQ.
A core: it knows offsets and time, no log and no socket.
"""

from __future__ import annotations

import attrs

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.master import Close, Idle, LogView
from broker.ha.pace import Pace


@attrs.frozen
class SendBlock:
    """Send ``size`` bytes from ``offset``; 0 bytes is a heartbeat."""

    offset: int
    size: int


@attrs.define(eq=False)
class _Slave:
    host: str
    read_ns: int
    written_ns: int
    pace: Pace
    ack: int | None = None
    next: int | None = None
    told: bool = False
    """True: it was sent where the log begins, behind what it asks for. The protocol has no other way to say so."""
    doubted: bool = False
    """True: it has been silent since another connection came from its host."""


class MasterCore:
    """All slaves of one master. Implements ``broker.ha.acks.Holders``."""

    def __init__(self, config: HaConfig, log_end: int, durable_end: int) -> None:
        self.log_end, self.durable_end = log_end, durable_end
        self._config = config
        self._slaves: dict[int, _Slave] = {}

    # --- inputs ----------------------------------------------------------------------------------------------

    def advanced(self, log_end: int, durable_end: int) -> None:
        """The master's own log grew; up to ``durable_end`` the master itself holds it."""
        self.log_end, self.durable_end = log_end, durable_end

    def opened(self, connection: int, host: str, now_ns: int) -> None:
        for other in self._slaves.values():
            other.doubted = other.doubted or other.host == host
        self._slaves[connection] = _Slave(host, now_ns, now_ns, Pace(self._config, now_ns))

    def reported(self, connection: int, offset: int, now_ns: int) -> list[Close]:
        """A slave reported the end of its log. Returns the connections to close."""
        here = self._slaves.get(connection)
        if here is None:
            return []
        here.read_ns, here.doubted = now_ns, False
        if offset > self.log_end:
            return [Close(connection, f"the slave's log ends at {offset}, beyond the master's, which ends at "
                                      f"{self.log_end}: empty the slave's store")]
        if here.ack is not None and offset < here.ack:
            return [Close(connection, f"the slave reported {offset} after {here.ack}")]
        here.ack = offset
        return []

    def closed(self, connection: int) -> None:
        self._slaves.pop(connection, None)

    def tick(self, now_ns: int) -> list[Close]:
        """Time passed. Returns the connections that were silent for too long."""
        silent = []
        for connection, here in self._slaves.items():
            limit_ms = (self._config.first_report_ms if here.ack is None
                        else self._config.housekeeping_interval_ms)
            if now_ns - here.read_ns >= limit_ms * NS_PER_MS:
                silent.append(Close(connection, f"the slave said nothing for {limit_ms} ms"))
        return silent

    # --- sending ---------------------------------------------------------------------------------------------

    def next_send(self, connection: int, log: LogView, now_ns: int) -> SendBlock | Idle | Close:
        """Return what to write to this connection next. It counts as written, so call this only when there is room."""
        here = self._slaves[connection]
        heartbeat_ns = here.written_ns + self._config.heartbeat_interval_ms * NS_PER_MS
        if here.ack is None:
            return Idle(heartbeat_ns)
        if here.next is None:
            here.next = here.ack or log.last_file
        begin, size = here.next, 0
        if not log.begin <= begin <= log.end:
            if begin < log.begin and not here.told:
                here.told, here.written_ns = True, now_ns
                return SendBlock(log.begin, 0)
            return Close(connection, f"the slave asks for offset {begin}, but the log holds {log.begin} to {log.end}: "
                                     "empty the slave's store")
        if begin < log.end:
            size = here.pace.take(log.end - begin, log.file_bytes - begin % log.file_bytes, now_ns)
            if not size:
                return Idle(min(heartbeat_ns, now_ns + 100 * NS_PER_MS))
        elif now_ns < heartbeat_ns:
            return Idle(heartbeat_ns)
        here.next, here.written_ns = begin + size, now_ns
        return SendBlock(begin, size)

    # --- acknowledgements ------------------------------------------------------------------------------------

    @property
    def acks(self) -> dict[int, int | None]:
        """Return the reported end of each slave that counts, by connection; None: it reported nothing yet."""
        return {connection: here.ack for connection, here in self._slaves.items() if not here.doubted}

    def ack(self, connection: int) -> int:
        """The reported end of this slave; -1: it reported nothing yet."""
        here = self._slaves.get(connection)
        return -1 if here is None or here.ack is None else here.ack

    def holds_all(self, end: int) -> bool:
        return self.durable_end >= end and all(ack is not None and ack >= end for ack in self.acks.values())

    def holders(self, end: int) -> int:
        count = int(self.durable_end >= end)
        for here in self._slaves.values():
            if here.ack is not None and here.ack >= end and not here.doubted:
                count += 1
        return count

    def enough(self, least: int) -> bool:
        """Always: there is no SyncStateSet that could be too small."""
        return True
