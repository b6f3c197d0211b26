"""The slave's side of auto-switch replication: handshake, truncation, storing, acknowledgements, reconnection.

Source: ``AutoSwitchHAClient`` of RocketMQ. Differences that a Java master does not notice: the first acknowledgement
leaves at once, the handshake is sent once, epochs that a mis-tagged frame passes over are taken from the master's
handshake, and a log without epochs is compared, never trusted. The caller carries out outputs in their order and
reports back: the log is cut before the epoch file, an epoch is on disk before its first byte.
This module knows frames, epochs and offsets; it owns no log and no socket.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

import attrs

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.epochs import Epoch, EpochList, consistent_point
from broker.ha.silence import Attention, Ear
from broker.ha.wire import Ack, HaState, MasterHandshake, SlaveHandshake, Transfer

NEVER: Final = 2**63 - 1


class NoEpochs(enum.Enum):
    """The assumption about a log without a single epoch."""

    LOST = "lost"
    """The epoch file is gone: nothing is known of the log's bytes, and they are copied anew."""
    PLAIN = "plain"
    """The log is of a group without a controller: bytes before the master's first epoch count as the same."""


@attrs.frozen
class Connect:
    """Connect to the master's HA address."""

    address: str


@attrs.frozen
class Send:
    data: bytes


@attrs.frozen
class TruncateLog:
    """Cut the log, and what is built from it, at ``point``, a message's boundary; then call ``truncated``.

    With ``everything`` the log becomes empty and takes whatever offset comes first."""

    point: int
    everything: bool = False
    below_confirm: bool = False
    """True: confirmed messages are cut, after an unclean election or in a mode that promises nothing. To be
    announced."""


@attrs.frozen
class WriteEpochs:
    """Write the list to disk before the next output is carried out, unless it is there already."""

    epochs: EpochList


@attrs.frozen
class AppendLog:
    """Append whole records of these bytes and of those kept before, then call ``stored``.

    The bytes stand at ``offset`` of the log, and may end within a record."""

    offset: int
    body: bytes | memoryview


@attrs.frozen
class SetConfirm:
    confirm: int


@attrs.frozen
class LogTrusted:
    """Note that the log is level with the master's: what this replica may have lost with its machine is here again."""


@attrs.frozen
class Disconnect:
    reason: str
    is_usual: bool = False
    """True: it is no trouble, and nobody has to do anything."""


Output = Connect | Send | TruncateLog | WriteEpochs | AppendLog | SetConfirm | LogTrusted | Disconnect


class HaSlave:
    """One slave and its log, through any number of connections to any masters."""

    def __init__(
        self, config: HaConfig, broker_id: int, epochs: EpochList, log_end: int, confirm: int, *,
        learner: bool = False, sync_from_last_file: bool = False, no_epochs: NoEpochs = NoEpochs.LOST,
        in_doubt: bool = False, trusted_end: int | None = None, may_begin: Callable[[int], bool] = lambda offset: True,
        begin: Callable[[], int] = lambda: 0,
    ) -> None:
        """``in_doubt``: until the log is level with a master's it may lack what it acknowledged. ``trusted_end``: the
        log after it is copied anew once there is a master. ``may_begin``: returns whether an empty log may begin at
        that offset now; it is asked again until it may. ``begin``: returns where the log begins."""
        assert trusted_end is None or (in_doubt and trusted_end < log_end), "of a doubtful log, a part"
        self.state = HaState.READY
        self.epochs = epochs.within(log_end)
        self.log_end = log_end
        """End of what is stored, and flushed where puts wait for their flush."""
        self.confirm = min(confirm, log_end)
        self._config = config
        self._hello = SlaveHandshake(broker_id, sync_from_last_file, learner)
        self._no_epochs = no_epochs
        self._address: str | None = None
        self._connect_ns = NEVER
        self._attention = Attention(config)
        self._ear = Ear(self._attention, 0)
        self._away_ns: int | None = None
        """Since when the master answers on no connection; None: it answers, or there is no address."""
        self._greeted = False
        """The master of this connection has answered."""
        self._asked_ns = 0
        """Time of the first acknowledgement; the master's first words answer it."""
        self._told = False
        """The master has sent bytes of its log, or said that there are none."""
        self._written_ns = 0
        self._beat_ns: int | None = None
        self._received_end = log_end
        self._reported = -1
        self._empty = log_end == 0
        self._confirm_of_master = 0
        self._master = EpochList()
        self._cutting: TruncateLog | None = None
        self._trusted_end = trusted_end
        self._level_at = NEVER if in_doubt else -1
        """The log is in doubt until it is stored up to here, the end of the master's log when they were compared. -1:
        it is not in doubt."""
        self._master_end = 0
        self._may_begin, self._begin = may_begin, begin
        self._to_begin: int | None = None
        """Offset where the empty log waits to begin. Until then there is no connection, since no bytes could be
        stored."""

    @property
    def copies(self) -> bool:
        """Return whether this replica lacks what all replicas in sync hold, and so copies old messages."""
        return self._confirm_of_master > self._received_end

    def master_silent(self, now_ns: int) -> bool:
        """Return whether the master beats and said nothing for ``haSilenceMs``, or did not answer for so long."""
        if self._greeted:
            return self._ear.silent(now_ns)
        return self._away_ns is not None and self._attention.silent(self._away_ns, now_ns)

    # --- connections -----------------------------------------------------------------------------------------

    def follow(self, address: str | None, now_ns: int) -> list[Output]:
        """Follow the master whose HA port is at ``address``; None: it is unknown. A new address is connected to at
        once."""
        if address == self._address:
            return []
        self._address = address
        outputs: list[Output] = []
        if self.state is not HaState.READY:
            outputs += self._leave("the master's HA address changed", now_ns, 0)
        self._away_ns = None if address is None else now_ns
        self._connect_ns, self._to_begin = NEVER if address is None else now_ns, None
        return outputs + self.tick(now_ns)

    def connected(self, now_ns: int) -> list[Output]:
        """A connection to the master was made."""
        self.state = HaState.HANDSHAKE
        self._ear = Ear(self._attention, now_ns)
        self._written_ns, self._beat_ns = now_ns, None
        self._reported, self._told = -1, False
        return [Send(self._hello.to_bytes())]

    def closed(self, now_ns: int) -> None:
        """The connection ended, or could not be made."""
        self._leave("", now_ns, self._config.reconnect_wait_ms)

    def tick(self, now_ns: int) -> list[Output]:
        self._attention.look(now_ns)
        self._ear.look(now_ns)
        if self.state is HaState.READY:
            if self._to_begin is not None and self._may_begin(self._to_begin):
                self._away_ns = self._connect_ns = now_ns
                self._to_begin = None
            if self._address is None or now_ns < self._connect_ns:
                return []
            self._connect_ns = NEVER  # ``connected`` or ``closed`` is next
            return [Connect(self._address)]
        if now_ns - self._ear.heard_ns >= self._config.housekeeping_interval_ms * NS_PER_MS:
            return self._leave(f"the master said nothing for {self._config.housekeeping_interval_ms} ms", now_ns,
                               self._config.reconnect_wait_ms)
        if self.state is HaState.TRANSFER and self._reported >= 0 and now_ns >= self._repeat_ns:
            self._beat_ns = now_ns
            return [self._ack(now_ns)]
        return []

    @property
    def deadline_ns(self) -> int:
        """Time when ``tick`` is next due; ``NEVER`` while only an event can change anything."""
        if self.state is HaState.READY:
            return self._connect_ns if self._to_begin is None else 0
        silent = self._ear.heard_ns + self._config.housekeeping_interval_ms * NS_PER_MS
        return silent if self._reported < 0 else min(silent, self._repeat_ns)

    @property
    def _repeat_ns(self) -> int:
        """Time to repeat the last acknowledgement.

        A slave that beats repeats it whatever else it says, and right after the first one: by that its master knows
        that it beats."""
        config = self._config
        if config.beat_interval_ms:
            return 0 if self._beat_ns is None else self._beat_ns + config.beat_interval_ms * NS_PER_MS
        return self._written_ns + config.heartbeat_interval_ms * NS_PER_MS

    # --- the master's words ----------------------------------------------------------------------------------

    def received(self, message: MasterHandshake | Transfer, now_ns: int) -> list[Output]:
        self._ear.heard_ns = now_ns
        expected = MasterHandshake if self.state is HaState.HANDSHAKE and self._cutting is None else Transfer
        if self.state is HaState.READY:
            return []
        if self._cutting is not None or not isinstance(message, expected):
            return self._leave(f"the master sent {type(message).__name__} where a slave in state {self.state.name} "
                               "expected something else", now_ns, self._config.reconnect_wait_ms)
        if isinstance(message, MasterHandshake):
            self._greeted, self._away_ns = True, None
            return self._handshake(message, now_ns)
        return self._transfer(message, now_ns)

    def truncated(self, log_end: int | None, now_ns: int) -> list[Output]:
        """The log was cut and ends at ``log_end`` now; None when that failed, or would have split a message."""
        cut = self._cutting
        if cut is None:
            return []  # the connection ended meanwhile; the next handshake finds what is left to cut
        self._cutting = None
        assert log_end is None or log_end <= self._received_end, "no cut makes a log longer"
        if log_end is not None:
            self._cut_to(log_end)
        if log_end != cut.point:
            return self._leave(f"the log could not be cut at {cut.point}", now_ns, self._config.truncate_retry_ms)
        return self._start(cut.point, now_ns)

    def stored(self, log_end: int, now_ns: int) -> list[Output]:
        """The log is stored up to ``log_end``, and flushed where puts wait for their flush."""
        if log_end == self.log_end == self._reported:
            return []
        assert log_end <= self._received_end or self._empty, "only what came is stored"
        self.log_end = log_end
        return self._take_confirm() + self._ack_what_is_stored(now_ns) + self._judge()

    def not_stored(self, log_end: int) -> None:
        """The log ends there, whatever came after it.

        Either an ``AppendLog`` or ``WriteEpochs`` failed, as on a full disk, and ``closed`` is next; or a part of a
        record was lost with the connection before, and ``connected`` is next."""
        self._received_end = log_end
        self._empty = log_end == 0

    # --- inside ----------------------------------------------------------------------------------------------

    def _handshake(self, message: MasterHandshake, now_ns: int) -> list[Output]:
        self._master, self._master_end = message.epochs, message.log_end
        point: int | None
        if self._empty:
            point = self._received_end
        elif len(self.epochs) == 0:
            first = message.epochs.entries[0].start if message.epochs else 0
            point = min(self._received_end, first, message.log_end) if self._no_epochs is NoEpochs.PLAIN else 0
        else:
            point = consistent_point(self.epochs, self._received_end, message.epochs, message.log_end)
            if point is None:
                return self._leave("this log and the master's have no epoch in common: remove this replica's store to "
                                   "have it copied anew", now_ns, self._config.truncate_retry_ms)
        if self._trusted_end is not None and not self._empty:
            point = min(point, self._trusted_end)
        assert 0 <= point <= self._received_end, "logs are the same as far as both reach"
        if point < self._begin():
            point = 0  # all that is here differs from the master's log
        everything = point == 0 and not self._empty
        if point < self._received_end or everything:
            self._cutting = TruncateLog(point, everything, below_confirm=point < self.confirm)
            return [self._cutting]
        return self._start(point, now_ns)

    def _cut_to(self, log_end: int) -> None:
        self.log_end = self._received_end = log_end
        self._empty = self._empty or log_end == 0
        self.confirm = min(self.confirm, log_end)

    def _start(self, point: int, now_ns: int) -> list[Output]:
        """Begin to copy: this log ends where both are the same. An epoch that begins right there stays only if it is
        the master's own."""
        assert point == self._received_end and self._cutting is None, "what differs was cut off"
        kept = self.epochs.cut_from_offset(point)
        here = self.epochs.find(point)
        if here is not None and here.start == point and here in self._master.entries:
            kept = EpochList((*kept, here))
        self.epochs = kept
        self._confirm_of_master = 0
        self.state = HaState.TRANSFER
        self._trusted_end = None
        if self._level_at >= 0:
            self._level_at = self._master_end
        return [WriteEpochs(kept), SetConfirm(self.confirm), *self._ack_what_is_stored(now_ns), *self._judge()]

    def _transfer(self, message: Transfer, now_ns: int) -> list[Output]:
        size = len(message.body)
        if self._empty:
            if size and not self._may_begin(message.offset):
                return self._wait_to_begin(message.offset, now_ns)
            if size:
                self._received_end, self._empty = message.offset, False
        elif message.offset != self._received_end:
            return self._leave(f"the master sent offset {message.offset}, this log ends at {self._received_end}",
                               now_ns, self._config.reconnect_wait_ms)
        end = message.offset + size
        last = self.epochs.last
        if last is not None and (message.epoch.epoch < last.epoch or (
                message.epoch.epoch == last.epoch and message.epoch != last)):
            return self._leave(f"the master sent epoch {message.epoch.epoch} from {message.epoch.start} behind epoch "
                               f"{last.epoch} from {last.start}", now_ns, self._config.reconnect_wait_ms)
        outputs: list[Output] = []
        if not self._told:
            self._told = True
            self._ear.began(self._asked_ns, now_ns)
        if size or message.offset == self._received_end:  # an empty log begins where the first byte is
            known = self._with_epochs(message.offset, end, message.epoch)
            if known is not self.epochs and known != self.epochs:
                self.epochs = known
                outputs.append(WriteEpochs(known))
            elif not size and message.confirm == self._confirm_of_master:
                self._ear.repeated(now_ns)
        assert not size or self.epochs.find(end) == self.epochs.last, "no epoch begins behind the log's end"
        if size:
            self._received_end = end
            outputs.append(AppendLog(message.offset, message.body))
        self._confirm_of_master = message.confirm
        return outputs + self._take_confirm()

    def _wait_to_begin(self, offset: int, now_ns: int) -> list[Output]:
        self._leave("", now_ns, 0)
        self._to_begin, self._connect_ns = offset, NEVER
        self._away_ns = None  # this slave left its master, so the master is not silent
        return [Disconnect(f"this log is empty, and would begin at {offset}: the ends of queues that have no message "
                           "from there on must be known first", is_usual=True)]

    def _with_epochs(self, offset: int, end: int, tag: Epoch) -> EpochList:
        """Return the list with every epoch of the master's that has begun by ``end``.

        A Java master tags the last bytes of an epoch with the next one, which begins after them."""
        known = self.epochs
        if known.last == tag:
            return known
        told = {entry.epoch: entry for entry in self._master.drop_before(offset)} | {tag.epoch: tag}
        for epoch in sorted(told):
            last, entry = known.last, told[epoch]
            if entry.start <= end and epoch <= tag.epoch and (
                    last is None or (epoch > last.epoch and entry.start >= last.start)):
                known = known.append(*entry)
        assert known.last is None or known.last.epoch <= tag.epoch, "no epoch is known before its master is heard"
        return known

    def _take_confirm(self) -> list[Output]:
        confirm = min(self._confirm_of_master, self.log_end)
        if confirm <= self.confirm:
            return []
        assert confirm <= self.log_end, "only what is here is shown"
        self.confirm = confirm
        return [SetConfirm(confirm)]

    def _ack_what_is_stored(self, now_ns: int) -> list[Output]:
        """Acknowledge what is stored. The first time all that came must be: from there the master sends."""
        if self.state is not HaState.TRANSFER or self.log_end <= self._reported:
            return []
        return [self._ack(now_ns)] if self._reported >= 0 or self.log_end >= self._received_end else []

    def _judge(self) -> list[Output]:
        if self.state is not HaState.TRANSFER or not 0 <= self._level_at <= self.log_end:
            return []
        self._level_at = -1
        return [LogTrusted()]

    def _ack(self, now_ns: int) -> Send:
        assert self._reported <= self.log_end, "no connection hears that a log has become shorter"
        if self._reported < 0:
            self._asked_ns = now_ns
        self._reported, self._written_ns = self.log_end, now_ns
        return Send(Ack(self.log_end).to_bytes())

    def _leave(self, reason: str, now_ns: int, wait_ms: int) -> list[Output]:
        if self._greeted and self._address is not None:
            self._away_ns = self._ear.heard_ns if self._ear.silent(now_ns) else now_ns
        self._greeted = False
        self.state, self._cutting = HaState.READY, None
        self._connect_ns = NEVER if self._address is None else now_ns + wait_ms * NS_PER_MS
        return [Disconnect(reason)] if reason else []
