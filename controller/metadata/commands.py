"""Commands on the replicated metadata: one frozen class each.

Each carries the ``term`` of the leader that proposed it, and takes effect only when it is applied in that term. Each
that depends on who is alive carries the ``Observation`` that its proposer made: nobody looks around while applying.
Bytes are ``controller.metadata.codec``'s business. This module decides nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import attrs

from controller.metadata.groups import GroupKey, Replica

PRIORITY_DEFAULT: Final = 2**31 - 1
"""``brokerElectionPriority`` of a broker that has none; smaller wins."""
UNKNOWN_OFFSET: Final = -1


@attrs.frozen
class LiveReplica:
    """The last report (904) of a broker that the proposing controller takes to be alive."""

    epoch: int = -1
    max_offset: int = UNKNOWN_OFFSET
    confirm_offset: int = UNKNOWN_OFFSET
    priority: int = PRIORITY_DEFAULT
    learner: bool = False
    min_in_sync_replicas: int | None = None
    """The minimum as it was announced; None from a broker that announces none, such as every Java broker."""
    life: int | None = None
    """Life of the process that was heard, if it told one. This and the next field: since format 2."""
    address: str | None = None
    """Address of the process that was heard; None where it is not known, as for a master that is presumed alive."""


@attrs.frozen
class Observation:
    """The brokers of one group that were alive when the command was proposed, by broker id. Some may be no members."""

    live: Mapping[int, LiveReplica] = attrs.field(factory=dict)

    def sees(self, broker_id: int, replica: Replica | None) -> bool:
        """Return whether that member was alive: it, and not another process with its id."""
        seen = self.live.get(broker_id)
        if seen is None or replica is None:
            return False
        return seen.address is None or replica.is_process(seen.address, seen.life)


@attrs.frozen(kw_only=True)
class Command:
    """The base of every command of the log."""

    term: int
    """Raft term of the leader that proposed it."""


@attrs.frozen(kw_only=True)
class AlterSyncStateSet(Command):
    """1001: a master reports who is in sync with it. Compare-and-set on master, master epoch and SyncStateSet epoch."""

    key: GroupKey
    broker_id: int
    """The broker that asks; it must be the master."""
    master_epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int
    """The epoch that the sender knows, not the one it wants."""
    observation: Observation
    least: int | None = None
    """``minInSyncReplicas`` of the sender; None: it does not say. Since format 2.

    The sender acknowledges what its whole SyncStateSet holds, and nothing while that has fewer members.
    """


class Trigger(enum.IntEnum):
    """Origins of a request for an election."""

    BROKER = 1
    """A broker for itself: it found no master."""
    CONTROLLER = 2
    """The active controller: the master seems lost. The only one whose failure writes an epoch without a master."""
    ADMIN = 3
    """A person."""


@attrs.frozen(kw_only=True)
class ElectMaster(Command):
    """1002, and what the active controller does of itself."""

    key: GroupKey
    trigger: Trigger
    broker_id: int | None
    """The broker that asks, or that is designated. None: no one in particular."""
    designate: bool = False
    """``broker_id`` and no other shall be master, even while the present one lives."""
    unclean: bool = False
    """``enableElectUncleanMaster`` of the proposing leader: any member will do when none in sync is alive."""
    policy: str = "default"
    """A name of ``controller.metadata.policy.POLICIES``."""
    preferred: int | None = None
    """The broker that a policy such as ``preferred`` prefers."""
    observation: Observation


@attrs.frozen(kw_only=True)
class ApplyBrokerId(Command):
    """1013: bind an id to a check code, once and for ever."""

    key: GroupKey
    broker_id: int
    check_code: str
    """``address;millis``, made up by the broker and kept by it until it is answered."""


@attrs.frozen(kw_only=True)
class RegisterBroker(Command):
    """1003: a broker that has its id is here, at this address. Asks for the master."""

    key: GroupKey
    broker_id: int
    address: str
    learner: bool = False
    life: int | None = None
    """Life of the process that asks. This and what follows: since format 2."""
    running: bool = False
    """It was registered already, by a controller that did not know lives, and has its role."""
    instead_of: tuple[str, int | None] | None = None
    """Address and life of the process on record that the proposer judged dead; None: it judged none so."""
    observation: Observation


@attrs.frozen(kw_only=True)
class CleanBrokerData(Command):
    """1011: forget some brokers of a group, or all of it."""

    key: GroupKey
    broker_ids: frozenset[int] | None
    """None: the whole group."""
    clean_living: bool = False
    """Also those that are alive."""
    observation: Observation


@attrs.frozen(kw_only=True)
class DropEligible(Command):
    """The master's heartbeat announces a ``minInSyncReplicas`` that the SyncStateSet meets."""

    key: GroupKey
    broker_id: int
    master_epoch: int


@attrs.frozen
class ImportedGroup:
    """A group as another controller has it."""

    key: GroupKey
    replicas: Mapping[int, Replica]
    next_broker_id: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int
    master: int | None
    master_epoch: int


@attrs.frozen(kw_only=True)
class ImportGroups(Command):
    """Groups of another controller, ids and epochs kept. All or none."""

    groups: tuple[ImportedGroup, ...]


@attrs.frozen(kw_only=True)
class RaiseFormat(Command):
    """From here on commands and snapshots may be written in ``format``. To propose only when every member reads it."""

    format: int


AnyCommand = (
    AlterSyncStateSet | ElectMaster | ApplyBrokerId | RegisterBroker | CleanBrokerData | DropEligible | ImportGroups
    | RaiseFormat
)
