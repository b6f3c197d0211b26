"""Counts the replicas that must hold a message before its producer hears of it, and keeps the producers that wait.

Sources: RIP-34 (quorum write and automatic degradation) and ``CommitLog.asyncPutMessage``, ``calcNeedAckNums`` and
``GroupTransferService`` of RocketMQ. In a plain group RIP-34 refuses writes when too few replicas are left; RocketMQ
does so only where a slave may act as master. Here it is so there, and where ``enableAutoInSyncReplicas`` is on.
Members are counted by broker id, never by connection. This module knows numbers and sets, and no replication.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import attrs

PutT = TypeVar("PutT")
_NEVER: Final = 1 << 63
_Waiting = tuple[int, int, int, PutT]
"""One waiting put: its end in the log, its number, its deadline in nanoseconds, and the put itself."""


class PutStatus(enum.Enum):
    """``PutMessageStatus``: how a put ended."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"
    TOPIC_GONE = "TOPIC_GONE"
    """Of ours: its topic was deleted while the put was held."""


class BrokerRole(enum.Enum):
    """``brokerRole``. Under a controller every master is a ``SYNC_MASTER``."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def _positive(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name} is {value}; it counts the master too, so it is 1 at least")


@attrs.frozen
class QuorumConfig:
    """Keys of ``MessageStoreConfig`` and their defaults. Raises ``ValueError`` when they contradict each other."""

    total_replicas: int = attrs.field(default=1, validator=_positive)
    in_sync_replicas: int = attrs.field(default=1, validator=_positive)
    min_in_sync_replicas: int = attrs.field(default=1, validator=_positive)
    enable_auto_in_sync_replicas: bool = False
    ha_max_gap_not_in_sync: int = 256 << 20
    all_ack_in_sync_state_set: bool = False
    slave_timeout_ms: int = 3_000
    young_master_hold_ms: int = 0
    """Ours: for so long after its writes open, a master holds what it would have to refuse for lack of replicas, which
    are about to join. Then it refuses; a producer waits 3 s for its answer by default."""

    def __attrs_post_init__(self) -> None:
        for name in ("in_sync_replicas", "min_in_sync_replicas"):
            if getattr(self, name) > self.total_replicas > 1:
                raise ValueError(f"{name} is {getattr(self, name)}, total_replicas {self.total_replicas}: no put could "
                                 "ever succeed")


@attrs.frozen
class Mode:
    """The kind of group that this broker is in."""

    role: BrokerRole = BrokerRole.SYNC_MASTER
    controller: bool = False
    slave_acting_master: bool = False


@attrs.frozen
class Replicas:
    """Numbers of a group's replicas, as the master knows them."""

    accepted: int = 1
    """Members of the SyncStateSet that the controller has accepted, never of a proposal (controller mode)."""
    alive: int = 1
    """Replicas that the name server has seen, the master among them (master/slave mode)."""
    in_sync: int = 1
    """1 + slaves within ``ha_max_gap_not_in_sync`` (master/slave mode)."""


ALL: Final = -1
"""Every member of the SyncStateSet, of the accepted and of the one that is asked for."""


@attrs.frozen
class Deny:
    """Nothing is written; the status is ``IN_SYNC_REPLICAS_NOT_ENOUGH``."""

    have: int
    need: int


class Need(NamedTuple):
    """Write, then wait for so many holders, the master among them; ``ALL``, or 1 and nobody is waited for."""

    acks: int
    least: int = 1
    """Members that the accepted SyncStateSet must have at the release, too: it may have shrunk since the put."""

    @property
    def waits(self) -> bool:
        return self.acks != 1 or self.least > 1


@lru_cache(maxsize=64)
def need_of(acks: int, least: int = 1) -> Need:
    """The ``Need`` of so many holders: one object for all puts that need the same."""
    assert (acks == ALL or acks >= 1) and least >= 1, "the master counts itself"
    return Need(acks, least)


def needed_acks(mode: Mode, config: QuorumConfig, replicas: Replicas, wait_store_ok: bool = True) -> Need | Deny:
    """Decide for one put what it needs, from what is known before it is written.

    ============== ========================= ===================================== ==========================
    group          deny when                 need                                  counted by
    ============== ========================= ===================================== ==========================
    not SYNC       never                     1                                     --
    controller     accepted < min            ALL, or ``in_sync_replicas``; min of  the accepted SyncStateSet
                                             them accepted at the release, too
    acting or auto need > cur                ``in_sync_replicas``; auto: that and  cur = min(alive, in_sync)
                                             cur, the smaller, but min at least
    other          never                     ``in_sync_replicas``                  --
    ============== ========================= ===================================== ==========================

    A message that does not wait for its storing passes no gate.
    """
    if mode.role is not BrokerRole.SYNC_MASTER or not wait_store_ok:
        return need_of(1)
    need = config.in_sync_replicas
    if mode.controller:
        if replicas.accepted < config.min_in_sync_replicas:
            return Deny(replicas.accepted, config.min_in_sync_replicas)
        return need_of(ALL if config.all_ack_in_sync_state_set else need, config.min_in_sync_replicas)
    if mode.slave_acting_master or config.enable_auto_in_sync_replicas:
        have = min(replicas.alive, replicas.in_sync)
        if config.enable_auto_in_sync_replicas:
            need = max(min(need, have), config.min_in_sync_replicas)
        if need > have:
            return Deny(have, need)
    return need_of(need)


def in_sync_count(config: QuorumConfig, log_end: int, acks: Mapping[int, int | None]) -> int:
    """Return 1 + slaves whose log is less than the gap behind; one that has not reported counts as at -1, as in Java.
    """
    return 1 + sum(log_end - (-1 if ack is None else ack) < config.ha_max_gap_not_in_sync for ack in acks.values())


class Holders(Protocol):
    """Tells which replicas hold which part of the log; implemented by the master's side of replication."""

    def holds_all(self, end: int) -> bool:
        """Return whether every member of the SyncStateSet, and of any set that is asked for, holds the log up to
        ``end``."""
        ...

    def holders(self, end: int) -> int:
        """Return how many distinct replicas that may count hold the log up to ``end``, this one among them."""
        ...

    def enough(self, least: int) -> bool:
        """Return whether the accepted SyncStateSet has ``least`` members, or more where more are demanded now. A
        replica that is only asked for or about to join does not count."""
        ...


def satisfied(need: Need, end: int, holders: Holders) -> bool:
    """Return whether enough replicas hold the message that ends at ``end``, and enough are in sync, as ``need`` says.

    The demand is that of its put, or that of now where that is higher. A message that waits for nobody is held."""
    if need.acks == ALL:
        return holders.enough(need.least) and holders.holds_all(end)
    return not need.waits or (
        holders.enough(need.least) and (need.acks <= 1 or holders.holders(end) >= need.acks))


class PutQueue(Generic[PutT]):
    """Puts that wait for acknowledgements, released in the order of their offsets.

    Where one put needs something else than the next one, neither waits for the other. ``release`` is called once with
    each put and its status.
    """

    def __init__(self, release: Callable[[PutT, PutStatus], None], waiting_max: int = 100_000) -> None:
        self._release = release
        self._waiting_max = waiting_max
        self._by_need: dict[Need, list[_Waiting[PutT]]] = {}
        """Waiting puts in the order of their ends in the log."""
        self._count = self._number = 0
        self._due_ns = _NEVER
        """No waiting put has a deadline before this moment."""

    def __len__(self) -> int:
        return self._count

    def add(self, put: PutT, end: int, need: Need, deadline_ns: int) -> bool:
        """Let a put wait. False: the queue is full, and the put's holders are unknown (``FLUSH_SLAVE_TIMEOUT``)."""
        if self._count >= self._waiting_max:
            return False
        self._count += 1
        self._number += 1
        queue = self._by_need.get(need)
        if queue is None:
            queue = self._by_need[need] = []
        waiting = end, self._number, deadline_ns, put
        if queue and end < queue[-1][0]:
            insort(queue, waiting)
        else:
            queue.append(waiting)
        assert len(queue) < 2 or queue[-2][0] <= queue[-1][0], "in the order of their ends"
        if deadline_ns < self._due_ns:
            self._due_ns = deadline_ns
        return True

    def advanced(self, holders: Holders) -> None:
        """Release puts that are held now: a replica acknowledged, or the SyncStateSet changed."""
        for need, queue in self._by_need.items():
            count = _held(queue, need, holders)
            if count:
                held = queue[:count]
                del queue[:count]
                self._count -= count
                assert self._count >= len(queue), "each put is counted until it is released"
                for _, _, _, put in held:
                    self._release(put, PutStatus.PUT_OK)

    def expire(self, now_ns: int) -> None:
        """Release puts whose time is over: the message stays in the log, and nobody knows which replicas hold it."""
        if now_ns < self._due_ns:
            return
        due: list[_Waiting[PutT]] = []
        for queue in self._by_need.values():
            due += [waiting for waiting in queue if waiting[2] <= now_ns]
            queue[:] = [waiting for waiting in queue if waiting[2] > now_ns]
        self._due_ns = min((waiting[2] for queue in self._by_need.values() for waiting in queue), default=_NEVER)
        assert self._due_ns > now_ns, "whatever was due is out of its queue"
        self._end(sorted(due, key=itemgetter(2, 1)), PutStatus.FLUSH_SLAVE_TIMEOUT)

    def fail_all(self, status: PutStatus = PutStatus.FLUSH_SLAVE_TIMEOUT) -> None:
        """Release all puts: this broker is master no longer, so nobody can acknowledge them."""
        waiting: list[_Waiting[PutT]] = []
        for queue in self._by_need.values():
            waiting += queue
            queue.clear()
        self._due_ns = _NEVER
        assert len(waiting) == self._count, "each put is counted until it is released"
        self._end(sorted(waiting, key=itemgetter(1)), status)

    def _end(self, ended: Sequence[_Waiting[PutT]], status: PutStatus) -> None:
        self._count -= len(ended)
        assert self._count >= 0, "each put ends once"
        for _, _, _, put in ended:
            self._release(put, status)


def _held(queue: list[_Waiting[PutT]], need: Need, holders: Holders) -> int:
    """Return how many puts from the front are held now. A replica that holds a message holds all before it."""
    if not queue or not satisfied(need, queue[0][0], holders):
        return 0
    return bisect_left(queue, True, 1, key=lambda waiting: not satisfied(need, waiting[0], holders))
