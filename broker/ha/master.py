"""The master's side of auto-switch replication: handshakes, what to send to whom, and who is silent.

Sources: ``AutoSwitchHAConnection`` of RocketMQ and apache/rocketmq#9689, #9897, #8875, #3015. A connection is a number
that the caller gives. The epoch of what is sent is looked up in the present list each time, so that no connection goes
on with an old one and the last bytes of an epoch carry that epoch. This module knows frames, epochs and the
SyncStateSet's bookkeeping; it reads no log and owns no socket.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.departed import Departed
from broker.ha.epochs import Epoch, EpochList
from broker.ha.insync import InSync
from broker.ha.pace import Pace
from broker.ha.places import Stage
from broker.ha.silence import Attention, Ear
from broker.ha.wire import Ack, MasterHandshake, SlaveHandshake
from remoting.bodies.controller import END_OFFSET_OPEN

DEPARTED_MAX: Final = 10_000
"""Slaves without a connection, members aside, of which is known what they were told: ten of the largest groups."""
_NEVER: Final = 2**63 - 1


class LogView(NamedTuple):
    """The master's commit log now; offsets."""

    begin: int
    end: int
    last_file: int = 0
    """Offset where the log's last file begins."""
    file_bytes: int = END_OFFSET_OPEN
    """A frame ends with its file: a Java slave could not store one that goes on in the next file."""


class SendLog(NamedTuple):
    """Read ``size`` bytes from ``offset`` and send them as a ``Transfer``; 0 bytes is a heartbeat."""

    offset: int
    size: int
    epoch: Epoch
    confirm: int


@attrs.frozen
class Idle:
    """There is nothing to send before ``until_ns``, unless something happens."""

    until_ns: int


@attrs.frozen
class Close:
    """End this connection, for a reason to be logged."""

    connection: int
    reason: str


@attrs.define
class _Connection:
    ear: Ear
    written_ns: int
    pace: Pace
    handshake: SlaveHandshake | None = None
    answered: bool = False
    ack: int | None = None
    """Its first acknowledgement, where its copy begins; None before that."""
    told_end: int = 0
    """End of the log as the answer to its handshake told it."""
    next: int | None = None
    """Offset of the next byte to send."""
    told: Epoch | None = None
    told_confirm: int = -1
    beat_ns: int = _NEVER
    """Time to repeat the last words, to a slave that beats or has beaten."""


class HaMaster:
    """All slaves' connections of one mastership."""

    def __init__(self, config: HaConfig, in_sync: InSync, epochs: EpochList) -> None:
        self.epochs = epochs
        self.in_sync = in_sync
        self._config = config
        self._connections: dict[int, _Connection] = {}
        self._present: dict[int, int] = {}  # broker id -> its connection
        self._attention = Attention(config, in_sync.started_ns)
        self._began = in_sync.log_end
        self._met: set[int] = set()
        """Slaves that have acknowledged to this run of the master: their bytes after ``_began`` come from it."""
        self._offered: dict[int, int] = {}
        """Slave without a log -> where it was offered to begin. It may leave to ask where queues end before that place,
        and finds the same one when it is back: the last file may be another by then, each time."""
        self._missed: dict[int, int] = {}
        """Slave without a log -> number of offers whose file was deleted before it was back."""
        self._departed = Departed(DEPARTED_MAX)

    # --- what happens ----------------------------------------------------------------------------------------

    def opened(self, connection: int, now_ns: int) -> None:
        """A connection was accepted, on which nothing is said yet."""
        assert connection not in self._connections, "each connection has its own number"
        self._connections[connection] = _Connection(Ear(self._attention, now_ns), now_ns, Pace(self._config, now_ns))

    def received(self, connection: int, message: SlaveHandshake | Ack, now_ns: int) -> list[Close]:
        """Take a slave's message. Returns connections to close, which may be another one of the same slave."""
        here = self._connections.get(connection)
        if here is None:
            return []  # it closed before its last words were read
        here.ear.heard_ns = now_ns
        if isinstance(message, SlaveHandshake):
            return self._handshake(connection, here, message, now_ns)
        return self._ack(connection, here, message.offset, now_ns)

    def closed(self, connection: int) -> None:
        """The connection ended. A slave that has connected again meanwhile is not lost by that."""
        here = self._connections.pop(connection, None)
        if here is not None and here.handshake is not None:
            broker_id = here.handshake.broker_id
            if self._present.get(broker_id) == connection:
                del self._present[broker_id]
                self.in_sync.closed(broker_id)
                for other in self._departed.left(broker_id, self.in_sync.members):
                    self._met.discard(other)
                    self._offered.pop(other, None)
                    self._missed.pop(other, None)

    def renew(self, epochs: EpochList, in_sync: InSync, now_ns: int) -> None:
        """Begin another epoch of the same master. Connections and their acknowledgements stay."""
        assert in_sync.epoch_start >= self.in_sync.epoch_start, "a later epoch begins behind an earlier one"
        self.epochs, self.in_sync = epochs, in_sync
        for broker_id, connection in self._present.items():
            here = self._connections[connection]
            assert here.handshake is not None
            in_sync.opened(broker_id, here.handshake.async_learner, now_ns, here.ear)
            if here.ack is not None:
                in_sync.acked(broker_id, here.ack, now_ns)

    def tick(self, now_ns: int) -> list[Close]:
        """Time passed: close connections that were silent for too long."""
        self.in_sync.tick(now_ns)
        self._attention.look(now_ns)
        silent = []
        for connection, here in self._connections.items():
            here.ear.look(now_ns)
            if here.handshake is None:
                if now_ns - here.ear.heard_ns >= self._config.handshake_timeout_ms * NS_PER_MS:
                    silent.append(Close(connection, f"no handshake in {self._config.handshake_timeout_ms} ms"))
            elif now_ns - here.ear.heard_ns >= self._config.housekeeping_interval_ms * NS_PER_MS:
                silent.append(Close(connection, f"slave {here.handshake.broker_id} said nothing for "
                                                f"{self._config.housekeeping_interval_ms} ms"))
        return silent

    def standing(self, connection: int) -> Stage:
        """Return how far this connection has got; it decides which connection ends when there is no room."""
        here = self._connections.get(connection)
        if here is None or here.handshake is None:
            return Stage.SILENT
        if here.handshake.broker_id in self.in_sync.members:
            return Stage.MEMBER
        return Stage.SPOKE if here.ack is None else Stage.COPIES

    def slave_of(self, connection: int) -> tuple[int, int] | None:
        """Return the slave's broker id, and what it has acknowledged (-1: nothing); None: it has not said who it is."""
        here = self._connections.get(connection)
        if here is None or here.handshake is None:
            return None
        return here.handshake.broker_id, -1 if here.ack is None else here.ack

    # --- what to send ----------------------------------------------------------------------------------------

    def next_send(self, connection: int, log: LogView, now_ns: int) -> MasterHandshake | SendLog | Idle | Close:
        """Return what to write to this connection next. It counts as written, so call this only when there is room."""
        here = self._connections[connection]
        heartbeat_ns = here.written_ns + self._config.heartbeat_interval_ms * NS_PER_MS
        if here.handshake is None or (here.answered and here.ack is None):
            return Idle(heartbeat_ns if here.handshake is None else here.ear.heard_ns
                        + self._config.housekeeping_interval_ms * NS_PER_MS)
        if not here.answered:
            here.answered, here.written_ns = True, now_ns
            # A power cut may have taken the end of this log, and this master goes on with its epoch. A slave that still
            # holds that end has other bytes of the same epoch than those that were written there since.
            here.told_end = log.end if here.handshake.broker_id in self._met else min(log.end, self._began)
            return MasterHandshake(here.told_end, self.epochs)
        begin = here.next
        if begin is None:
            begin = self._position(here, log)
        elif here.beat_ns <= now_ns and here.told is not None:
            here.beat_ns = now_ns + self._config.beat_interval_ms * NS_PER_MS
            return SendLog(begin, 0, here.told, here.told_confirm)
        if not log.begin <= begin <= log.end:
            return Close(connection, f"slave {here.handshake.broker_id} asks for offset {begin}; the log holds "
                                     f"{log.begin} to {log.end}: its copy must be made anew")
        span = self._span(begin)
        if span is None:
            return Idle(heartbeat_ns)  # the log has no byte and no epoch yet
        epoch, end = span
        assert begin < end, "an epoch's bytes end behind each of them"
        behind, size = min(end, log.end) - begin, 0
        if behind > 0:
            size = here.pace.take(behind, log.file_bytes - begin % log.file_bytes, now_ns)
            if not size:
                return Idle(min(heartbeat_ns, now_ns + 100 * NS_PER_MS))
        elif here.told == epoch:
            due_ns = heartbeat_ns
            if here.told_confirm < self.in_sync.confirm:
                due_ns = here.written_ns + self._config.confirm_interval_ms * NS_PER_MS
            if now_ns < due_ns:
                return Idle(due_ns)
        assert begin + size <= min(end, log.end), "a frame has bytes of one epoch, and none behind the log's end"
        assert size <= log.file_bytes - begin % log.file_bytes, "a frame has bytes of one file"
        here.next, here.told, here.written_ns = begin + size, epoch, now_ns
        here.told_confirm = self.in_sync.confirm
        if size:
            self.in_sync.sent(here.handshake.broker_id, now_ns)
        return SendLog(begin, size, epoch, self.in_sync.confirm)

    # --- inside ----------------------------------------------------------------------------------------------

    def _handshake(self, connection: int, here: _Connection, message: SlaveHandshake, now_ns: int) -> list[Close]:
        if message.broker_id == self.in_sync.self_id:
            return [Close(connection, f"a slave says that it is broker {message.broker_id}, which is this master: two "
                                      "brokers have the same identity file")]
        if here.handshake is not None:
            if here.handshake == message and here.ack is None:
                return []  # Java repeats it while it waits; a second answer would only confuse it
            return [Close(connection, f"slave {message.broker_id} sent a second handshake")]
        here.handshake = message
        older = self._present.get(message.broker_id)
        self._present[message.broker_id] = connection
        self._departed.back(message.broker_id)
        self.in_sync.opened(message.broker_id, message.async_learner, now_ns, here.ear)
        if older is None:
            return []
        return [Close(older, f"slave {message.broker_id} has connected again")]

    def _ack(self, connection: int, here: _Connection, offset: int, now_ns: int) -> list[Close]:
        slave = here.handshake
        if slave is None:
            return [Close(connection, "an acknowledgement came before the handshake")]
        if not here.answered:
            return [Close(connection, f"slave {slave.broker_id} acknowledged before it was answered")]
        if offset > (self.in_sync.log_end if here.ack is not None else here.told_end):
            return [Close(connection, f"slave {slave.broker_id} acknowledged {offset}, the log ends at "
                                      f"{self.in_sync.log_end}, and ended at {here.told_end} for its handshake: it is "
                                      "ahead and must cut its log")]
        if here.ack is not None and offset < here.ack:
            return [Close(connection, f"slave {slave.broker_id} acknowledged {offset} after {here.ack}")]
        if self._present.get(slave.broker_id) != connection:
            return []  # an older connection's last words
        if here.ack is None:
            here.ear.began(here.written_ns, now_ns)
        elif here.ack == offset:
            self._repeated(here, now_ns)
        assert (here.ack or 0) <= offset <= self.in_sync.log_end
        here.ack = offset
        if offset:
            self._offered.pop(slave.broker_id, None)
            self._missed.pop(slave.broker_id, None)
        self._met.add(slave.broker_id)
        self.in_sync.acked(slave.broker_id, offset, now_ns)
        return []

    def _repeated(self, here: _Connection, now_ns: int) -> None:
        here.ear.repeated(now_ns)
        if here.ear.beats and here.beat_ns == _NEVER and self._config.beat_interval_ms:
            here.beat_ns = now_ns

    def _position(self, here: _Connection, log: LogView) -> int:
        if here.ack:
            return here.ack
        assert here.handshake is not None
        broker_id, begin = here.handshake.broker_id, log.begin
        if here.handshake.sync_from_last_file:
            begin = log.last_file
        elif self._offered.get(broker_id, begin) < begin:  # so the oldest file may go before it is back, each time
            missed = self._missed[broker_id] = self._missed.get(broker_id, 0) + 1
            begin = min(log.last_file, begin - begin % log.file_bytes + (log.file_bytes << missed - 1))
        offered = self._offered.get(broker_id, begin)
        begin = self._offered[broker_id] = offered if offered >= log.begin else begin
        return begin

    def _span(self, begin: int) -> tuple[Epoch, int] | None:
        """The epoch of the byte at ``begin``, and where that epoch's bytes end.

        Bytes before the first entry, of which nothing is known any more, count as the first epoch's.
        """
        entries = self.epochs.entries
        if not entries:
            return None
        if begin >= entries[-1].start:
            return entries[-1], END_OFFSET_OPEN
        found = self.epochs.find(begin)
        if found is None:
            return entries[0], entries[0].start
        after = self.epochs.next(found.epoch)
        return found, after.start if after else END_OFFSET_OPEN
