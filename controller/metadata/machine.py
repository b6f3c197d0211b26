"""``MetadataMachine``: the replicated metadata as a ``raft.StateMachine``.

Bytes in, outcomes out; bad bytes are refused with an outcome, because an exception out of ``apply`` stops the node.
It routes each command to the function that decides it, and keeps the groups; it decides nothing itself. Reads see the
state between two commands. No clock, no liveness, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from controller.metadata import snapshot
from controller.metadata.alter import alter
from controller.metadata.clean import clean
from controller.metadata.codec import FORMAT, MalformedCommand, check_reads, decode, encode
from controller.metadata.commands import (
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    CleanBrokerData,
    DropEligible,
    ElectMaster,
    ImportGroups,
    RaiseFormat,
    RegisterBroker,
)
from controller.metadata.elect import elect
from controller.metadata.eligible import drop
from controller.metadata.events import Applied
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.identity import apply_broker_id, register
from controller.metadata.imports import import_groups
from controller.metadata.outcomes import FormatRaised, Outcome, Refused, Superseded, Unreadable
from controller.metadata.resolve import resolve
from raft.statemachine import Entries
from remoting.codes import ResponseCode

GROUPS_MAX: Final = 100_000
"""Removed ones count, since they are remembered. The same on every controller, so not configurable."""
_NOTHING: Final = BrokerGroup()

Observer = Callable[[Applied], None]
"""Sees every command right after it was applied. Must not raise: that would stop the node."""


@attrs.frozen
class View:
    """One moment of the state, for a snapshot."""

    groups: Mapping[GroupKey, BrokerGroup]
    format: int


@attrs.define
class _State:
    """Replaced as a whole by a restore, so that whoever reads meanwhile sees the one or the other."""

    groups: dict[GroupKey, BrokerGroup] = attrs.field(factory=dict)
    named: dict[str, tuple[GroupKey, ...]] = attrs.field(factory=dict)
    """Keys of groups that are not removed, by broker name, sorted."""
    format: int = 1

    def put(self, key: GroupKey, group: BrokerGroup) -> None:
        known = self.groups.get(key)
        self.groups[key] = group
        if (known is None or known.removed) != group.removed:
            others = [other for other in self.named.get(key.name, ()) if other != key]
            keys = others if group.removed else sorted((*others, key))
            if keys:
                self.named[key.name] = tuple(keys)
            else:
                self.named.pop(key.name, None)
            assert (key in self.named.get(key.name, ())) != group.removed, "exactly the groups that are there are named"


_Result = tuple[Outcome, Mapping[GroupKey, BrokerGroup]]
"""The outcome, and each group that the command is about as it is afterwards."""


class MetadataMachine:
    """The replicated metadata. ``reads``: the newest format that this node takes; lower it only to play an old node."""

    def __init__(self, observer: Observer | None = None, *, reads: int = FORMAT) -> None:
        self.observer = observer
        self.reads = reads
        self._state = _State()

    # --- raft.StateMachine -----------------------------------------------------------------------------------

    def apply_entries(self, entries: Entries) -> list[object]:
        """``raft.statemachine.EntryMachine``: one ``Outcome`` each. Raises as ``apply_at``."""
        return [self.apply_at(command, entries.term) for command in entries.commands]

    def apply_at(self, data: bytes, term: int) -> Outcome:
        """Carry out a command committed in ``term``; one that was proposed in another is ``Superseded``.

        Raises ``FormatTooNew``, and nothing else: the group went on to a format that this node does not read.
        """
        state = self._state
        command: AnyCommand | None = None
        after: Mapping[GroupKey, BrokerGroup] = {}
        try:
            command = decode(data, state.format)
        except MalformedCommand as error:
            outcome: Outcome = Unreadable(remark=str(error))
        else:
            if term == command.term:
                outcome, after = self._decide(command)
            else:
                outcome = Superseded(
                    proposed_term=command.term, applied_term=term,
                    remark=f"proposed in term {command.term} and applied in {term}: another leader decides now")
        before = tuple((key, self._group(key)) for key in after) if self.observer is not None else ()
        if outcome.changed:
            if isinstance(command, RaiseFormat):
                state.format = command.format
            for key, group in after.items():
                assert follows(self._group(key), group)
                state.put(key, group)
        else:
            assert all(group == self._group(key) for key, group in after.items()), "what is not told does not change"
        if self.observer is not None:
            self.observer(Applied(term, command, outcome, tuple((key, old, after[key]) for key, old in before)))
        return outcome

    def capture(self) -> View:
        return View(dict(self._state.groups), self._state.format)

    def write(self, view: View, sink: snapshot.Sink) -> None:
        snapshot.write(view.groups, view.format, sink)

    def restore_from(self, chunks: Iterator[bytes]) -> None:
        """Raises ``UnreadableSnapshot`` or ``FormatTooNew``, and then leaves the state as it was."""
        groups, format_in_use = snapshot.read(chunks, self.reads)
        state = _State(format=format_in_use)
        for key, group in groups.items():
            state.put(key, group)
        self._state = state

    # --- deciding --------------------------------------------------------------------------------------------

    def preview(self, command: AnyCommand) -> Outcome:
        """Return the outcome that the command would have now, and change nothing.

        When the outcome is not ``changed`` it needs no entry in the log: it may be answered after a read barrier.
        Raises ``FormatTooNew`` for a ``RaiseFormat`` that this node could not follow.
        """
        if self._state.format < 2:  # drop the fields that came with a later format
            command = decode(encode(command, self._state.format), self._state.format)
        return self._decide(command)[0]

    def _decide(self, command: AnyCommand) -> _Result:
        if isinstance(command, RaiseFormat):
            return self._raise_format(command), {}
        if isinstance(command, ImportGroups):
            outcome, added = import_groups(self._group, command)
            room = GROUPS_MAX - len(self._state.groups)
            fresh = sum(key not in self._state.groups for key in added)
            assert all(self._group(key).removed for key in added), "an import replaces nobody"
            return (_full(), {}) if fresh > room else (outcome, added)
        before = self._group(command.key)
        if isinstance(command, ApplyBrokerId) and before is _NOTHING and len(self._state.groups) >= GROUPS_MAX:
            return _full(), {}
        outcome, after = _decide_group(before, command, self._state.format)
        return outcome, {command.key: after}

    def _group(self, key: GroupKey) -> BrokerGroup:
        return self._state.groups.get(key, _NOTHING)

    def _raise_format(self, command: RaiseFormat) -> Outcome:
        in_use, wanted = self._state.format, command.format
        if in_use >= 2 and wanted not in (in_use, in_use + 1):  # a wrong step is refused before readers are checked
            return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST,
                           remark=f"format {in_use} is in use: only {in_use + 1} may follow, not {wanted}")
        check_reads(self.reads, wanted)
        assert in_use <= self.reads, "a node that cannot follow has stopped"
        return FormatRaised(format=max(in_use, wanted), changed=wanted > in_use)

    # --- reading ---------------------------------------------------------------------------------------------

    @property
    def format(self) -> int:
        """The command format in use: what the leader encodes in."""
        return self._state.format

    def group(self, key: GroupKey) -> BrokerGroup | None:
        """A group as it is now; None if there is none, or no longer."""
        group = self._state.groups.get(key)
        return None if group is None or group.removed else group

    @property
    def groups(self) -> Mapping[GroupKey, BrokerGroup]:
        """Every group that ever was, the removed ones too, as they are now and will be. Nothing for other threads."""
        return self._state.groups

    def named(self, name: str) -> Sequence[GroupKey]:
        """The groups of that broker name, one per cluster, sorted."""
        return self._state.named.get(name, ())

    def resolve(self, name: str, cluster: str | None = None, identity: GroupKey | None = None) -> GroupKey | Refused:
        """The group that a request means: see ``controller.metadata.resolve``."""
        return resolve(name, cluster, identity, self.named(name))

    def next_broker_id(self, key: GroupKey) -> int:
        """1012: which id to apply for. Reserves nothing."""
        return self._group(key).next_broker_id

    def state_hash(self) -> bytes:
        """Equal on two controllers exactly when their states are."""
        return snapshot.digest(self._state.groups, self._state.format)


def follows(before: BrokerGroup, after: BrokerGroup) -> bool:
    """Check what holds of a group after each command that changes it. Returns True; a broken rule raises."""
    members = after.replicas.keys()
    assert after.sync_state_set <= members and after.eligible <= members, "who may be elected is a member"
    assert after.master is None or after.master in after.sync_state_set, "a master is in sync with itself"
    assert after.master == before.master or after.master_epoch > before.master_epoch or before.removed, (
        "a master epoch has one master, or none, as long as the group is")
    assert after.sync_state_set == before.sync_state_set or before.removed or (
        after.sync_state_set_epoch > before.sync_state_set_epoch), "and a SyncStateSet epoch one set"
    return True


def _decide_group(before: BrokerGroup, command: AnyCommand, in_use: int) -> tuple[Outcome, BrokerGroup]:
    match command:
        case ElectMaster():
            return elect(before, command)
        case AlterSyncStateSet():
            return alter(before, command, in_use)
        case RegisterBroker():
            return register(before, command, in_use)
        case ApplyBrokerId():
            return apply_broker_id(before, command)
        case CleanBrokerData():
            return clean(before, command)
        case DropEligible():
            return drop(before, command)
    raise AssertionError(f"no decision for {type(command).__name__}")


def _full() -> Refused:
    return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST,
                   remark=f"there are {GROUPS_MAX} broker groups, removed ones included, which is all there may be")
