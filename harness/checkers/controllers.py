"""Checks what controllers say of broker groups: epochs, masters, SyncStateSets and ids of brokers.

    next-id       ok {"next"}: the id to apply for
    apply-id      {"id", "code"}; where it is refused, as every function: fail {"refused": code, "next"}
    register      {"broker", "address"}; ok as replica-info, without a master where none is alive
    elect         {"broker", "designate"}; ok as replica-info: a new master, or the one that stays
    alter         {"broker", "master_epoch", "set", "set_epoch"}; ok {"set", "set_epoch"}
    replica-info  ok {"master", "master_epoch", "set", "set_epoch"}; sync-state the same
    metadata      ok {"node", "leader", "leads", "peers"}: each controller's own view, of no group
    rest          a broker sends no heartbeat for a while; nothing is told

``key`` is the group. All but metadata and rest are linearizable, so whatever was told before an operation began holds
at its end: the numbers never go back. Controllers elect without being asked, so what changed between is not explained,
only bounded. An operation of unknown outcome may happen at any later time, or never. One pass. Knows no file.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from harness.checkers.models import State, frozen
from harness.checkers.verdict import SHOWN, Breach, Valid, Verdict, broken
from harness.histories.events import APART, FAIL, INVOKE, OK, Event, HistoryError, Process, place, short

NEXT, APPLY, REGISTER, ELECT, ALTER = "next-id", "apply-id", "register", "elect", "alter"
INFO, SYNC, METADATA, REST = "replica-info", "sync-state", "metadata", "rest"
FUNCTIONS: Final = frozenset({NEXT, APPLY, REGISTER, ELECT, ALTER, INFO, SYNC, METADATA, REST})
OF_GROUPS: Final = FUNCTIONS - {METADATA, REST}
PROMISES: Final = (
    "epochs", "visible", "master", "set", "pairs", "fenced", "accepted", "designated", "phantom", "denied", "bound",
    "next", "leader")
NO_SUCH_ID: Final = 2010
"""CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, the answer to a registration under an id that nobody has."""
Number = int | None


@attrs.frozen
class GroupAnswer:
    """The content of one answer about a group. A field is None where the answer does not tell it."""

    by: str
    """The function, and where it stands, in words."""
    f: str
    master: Number = None
    master_epoch: Number = None
    members: frozenset[int] | None = None
    set_epoch: Number = None
    next_id: Number = None


@attrs.frozen
class Floor:
    """The highest numbers that answers had told, each with the answer that did."""

    master_epoch: int = 0
    set_epoch: int = 0
    next_id: int = 0
    of_master: GroupAnswer | None = None
    of_set: GroupAnswer | None = None
    of_next: GroupAnswer | None = None

    def above(self, told: GroupAnswer) -> Floor:
        """The floor when this is known, too."""
        made = self
        if told.master_epoch is not None and told.master_epoch > made.master_epoch:
            made = attrs.evolve(made, master_epoch=told.master_epoch, of_master=told)
        if told.set_epoch is not None and told.set_epoch > made.set_epoch:
            made = attrs.evolve(made, set_epoch=told.set_epoch, of_set=told)
        if told.next_id is not None and told.next_id > made.next_id:
            made = attrs.evolve(made, next_id=told.next_id, of_next=told)
        return made


@attrs.frozen
class Alter:
    """An alter as it was asked for."""

    began: int
    """The event with which it began."""
    members: frozenset[int]
    process: Process


@attrs.define
class GroupHistory:
    """All that was told and asked of one group so far."""

    floor: Floor = attrs.field(factory=Floor)
    masters: dict[int, tuple[int, GroupAnswer]] = attrs.field(factory=dict)
    """Master epoch -> its master, and the answer and event that told it first."""
    sets: dict[int, tuple[frozenset[int], GroupAnswer, int]] = attrs.field(factory=dict)
    """Set epoch -> the set, who told it first, and with which event."""
    pairs: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """Master epoch -> the lowest and the highest set epoch told with it."""
    epochs: list[int] = attrs.field(factory=list)
    """The keys of ``pairs``, in order."""
    alters: dict[int, list[Alter]] = attrs.field(factory=dict)
    """Set epoch -> the alters that knew it."""
    denied: set[int] = attrs.field(factory=set)
    """Alters that surely did not happen, by the index of the event with which they began."""
    codes: dict[int, tuple[str, str]] = attrs.field(factory=dict)
    """Id -> the check code that has it, and who told so."""
    asked_id: int = 0
    """The highest that anybody applied for."""


@attrs.frozen
class Open:
    """An operation under way, and what was known of its group when it began."""

    event: Event
    floor: Floor
    bound_to: str | None = None
    """For apply-id and register: the check code that was known to have the id."""


@attrs.define
class ControllersCheck:
    """One pass over a history: ``add`` each event in order, then ask for the ``verdict``."""

    _groups: dict[State, GroupHistory] = attrs.field(factory=dict)
    _open: dict[Process, Open] = attrs.field(factory=dict)
    counts: Counter[str] = attrs.field(factory=Counter)
    _breaks: Counter[str] = attrs.field(factory=Counter)
    _broken: list[Breach] = attrs.field(factory=list)

    def add(self, event: Event) -> None:
        """Takes the next event. Raises ``HistoryError`` where a value is not what its function has."""
        if event.process in APART or event.f not in FUNCTIONS:
            return
        if event.type == INVOKE:
            self._began(event)
            return
        asked = self._open.pop(event.process, None)
        if asked is None:
            return
        if event.type == OK:
            self._answered(asked, event)
        elif event.type == FAIL:
            self._refused(asked, event)

    def _group(self, event: Event) -> GroupHistory:
        return self._groups.setdefault(frozen(event.key), GroupHistory())

    def _began(self, event: Event) -> None:
        self.counts["operations"] += 1
        if event.f not in OF_GROUPS:
            self._open[event.process] = Open(event, Floor())
            return
        group, bound_to = self._group(event), None
        if event.f == APPLY:
            broker_id = number(event, "id")
            group.asked_id = max(group.asked_id, broker_id)
            bound_to = group.codes.get(broker_id, (None,))[0]
        elif event.f == REGISTER:
            bound_to = group.codes.get(number(event, "broker"), (None,))[0]
        elif event.f == ALTER:
            wanted = Alter(event.index, members(event), event.process)
            group.alters.setdefault(number(event, "set_epoch"), []).append(wanted)
        self._open[event.process] = Open(event, group.floor, bound_to)

    # --- answers ---------------------------------------------------------------------------------------------

    def _refused(self, asked: Open, event: Event) -> None:
        if event.f == ALTER:
            self._group(event).denied.add(asked.event.index)
        if event.f not in {APPLY, REGISTER} or not isinstance(event.value, Mapping) or "refused" not in event.value:
            return  # the answer told nothing
        self.counts["refused of ids"] += 1
        own = event.value["refused"] == NO_SUCH_ID if event.f == REGISTER else (
            asked.bound_to == str(fields(asked.event).get("code")))
        if asked.bound_to is not None and own:
            self._break("bound", f"{words(event)} knows nothing of an id that was bound before, to {asked.bound_to}",
                        event)
        if event.value.get("next") is not None:
            self._seen(asked, event, GroupAnswer(words(event), event.f, next_id=number(event, "next")))

    def _answered(self, asked: Open, event: Event) -> None:
        if event.f == METADATA:
            self._metadata(event)
        elif event.f == APPLY:
            self._bound(asked, event)
        elif event.f == NEXT:
            self._seen(asked, event, GroupAnswer(words(event), event.f, next_id=number(event, "next")))
        elif event.f == ALTER:
            self._altered(asked, event)
        elif event.f != REST:
            told = GroupAnswer(words(event), event.f, optional(event, "master"), optional(event, "master_epoch"),
                        members(event), number(event, "set_epoch"))
            self._seen(asked, event, told)
            if event.f == ELECT and fields(asked.event).get("designate") and told.master != number(
                    asked.event, "broker"):
                self._break("designated", f"{words(event)} designated broker {number(asked.event, 'broker')}, and "
                                          f"{told.master} is master", event)

    def _metadata(self, event: Event) -> None:
        self.counts["metadata"] += 1
        value = fields(event)
        leader, peers = value.get("leader"), value.get("peers", ())
        if leader is not None and leader not in peers:
            self._break("leader", f"{words(event)} names {leader} as the leader, who is none of {short(peers)}", event)
        if value.get("leads") and leader != value.get("node"):
            self._break("leader", f"{words(event)}: {value.get('node')} leads, and names {leader} as the leader", event)

    def _bound(self, asked: Open, event: Event) -> None:
        group, broker_id, code = self._group(event), number(asked.event, "id"), str(fields(asked.event).get("code"))
        had = group.codes.setdefault(broker_id, (code, words(event)))
        if had[0] != code:
            self._break("bound", f"id {broker_id} of {short(event.key)} was bound to {had[0]} ({had[1]}), and to "
                                 f"{code} ({words(event)})", event)
        self.counts["ids bound"] = sum(len(each.codes) for each in self._groups.values())
        group.floor = group.floor.above(GroupAnswer(words(event), event.f, next_id=broker_id + 1))

    def _altered(self, asked: Open, event: Event) -> None:
        wanted, known = members(asked.event), number(asked.event, "set_epoch")
        sender, epoch = number(asked.event, "broker"), number(asked.event, "master_epoch")
        told = GroupAnswer(words(event), event.f, sender, epoch, members(event), number(event, "set_epoch"))
        self.counts["alters acknowledged"] += 1
        for what, sent, floor, of in (("master epoch", epoch, asked.floor.master_epoch, asked.floor.of_master),
                                      ("set epoch", known, asked.floor.set_epoch, asked.floor.of_set)):
            if sent < floor:
                assert of is not None
                self._break("fenced", f"{words(event)} is of {what} {sent}, and is acknowledged after {of.by} told "
                                      f"{floor}", event)
        if told.members != wanted or told.set_epoch not in (known, known + 1):
            self._break("accepted", f"{words(event)} asked for {sorted(wanted)} after set epoch {known}, and is told "
                                    f"{sorted(told.members or ())} of {told.set_epoch}", event)
        self._seen(asked, event, told)

    # --- what is known of a group ----------------------------------------------------------------------------

    def _seen(self, asked: Open, event: Event, told: GroupAnswer) -> None:
        """Check what was told between the begin of ``asked`` and ``event``."""
        group = self._group(event)
        self.counts["answers"] += 1
        self.counts["compared"] += asked.floor != Floor()
        self._not_back(asked.floor, told, event)
        if told.next_id is not None and told.next_id > group.asked_id + 1:
            self._break("phantom", f"{told.by} tells {told.next_id} as the next id, and nobody applied for more than "
                                   f"{group.asked_id}", event)
        if told.master is not None and told.master_epoch is not None:
            self._master(group, told, told.master, told.master_epoch, event)
        if told.members is not None and told.set_epoch is not None:
            self._set(group, told, told.members, told.set_epoch, event)
            if told.master_epoch is not None:
                self._pair(group, told, told.master_epoch, told.set_epoch, event)
        group.floor = group.floor.above(told)

    def _not_back(self, floor: Floor, told: GroupAnswer, event: Event) -> None:
        for what, now, before, of in (
                ("master epoch", told.master_epoch, floor.master_epoch, floor.of_master),
                ("set epoch", told.set_epoch, floor.set_epoch, floor.of_set),
                ("next id", told.next_id, floor.next_id, floor.of_next)):
            if now is None or now >= before or told.f == ALTER:  # ``fenced`` reports an alter
                continue
            assert of is not None
            promise = "next" if what == "next id" else "visible" if of.f == ALTER else "epochs"
            self._break(promise, f"{told.by} tells {what} {now}, and {of.by} had told {before} before it began", event)

    def _master(self, group: GroupHistory, told: GroupAnswer, master: int, epoch: int, event: Event) -> None:
        had = group.masters.setdefault(epoch, (master, told))
        if had[0] != master:
            self._break("master", f"master epoch {epoch} of {short(event.key)} has two masters: {had[0]} ({had[1].by}) "
                                  f"and {master} ({told.by})", event)
        if not 0 < master <= group.asked_id:
            self._break("phantom", f"{told.by} names broker {master}, and nobody applied for that id", event)

    def _set(self, group: GroupHistory, told: GroupAnswer, found: frozenset[int], epoch: int, event: Event) -> None:
        had = group.sets.setdefault(epoch, (found, told, event.index))
        if had[0] != found:
            self._break("set", f"set epoch {epoch} of {short(event.key)} has two sets: {sorted(had[0])} ({had[1].by}) "
                               f"and {sorted(found)} ({told.by})", event)
        if strangers := sorted(each for each in found if not 0 < each <= group.asked_id):
            self._break("phantom", f"{told.by} has {strangers} in its set, and nobody applied for those ids", event)

    def _pair(self, group: GroupHistory, told: GroupAnswer, epoch: int, set_epoch: int, event: Event) -> None:
        """Each election changes the set, too: the two epochs rise together."""
        had = group.pairs.get(epoch)
        group.pairs[epoch] = (set_epoch, set_epoch) if had is None else (min(had[0], set_epoch), max(had[1], set_epoch))
        if had is None:
            insort(group.epochs, epoch)
        at = bisect_left(group.epochs, epoch)
        for other in group.epochs[max(at - 1, 0):at] + group.epochs[at + 1:at + 2]:
            low, high = group.pairs[other]
            if (set_epoch < high) if other < epoch else (set_epoch > low):
                self._break("pairs", f"{told.by} tells set epoch {set_epoch} in master epoch {epoch}, and in epoch "
                                     f"{other} it was {high if other < epoch else low}", event)

    # --- the end ---------------------------------------------------------------------------------------------

    def _unasked(self) -> None:
        """Check that a master asked for each set of several members, and was not refused."""
        for group in self._groups.values():
            for epoch, (found, told, at) in group.sets.items():
                asked = [each for each in group.alters.get(epoch - 1, ()) if each.began < at and each.members == found]
                if len(found) < 2 or any(each.began not in group.denied for each in asked):  # elections make sets of 1
                    continue
                promise = "denied" if asked else "phantom"
                why = "every alter to it was refused" if asked else "nobody asked for it"
                self._break(promise, f"{told.by} tells {sorted(found)} as the set of set epoch {epoch}, and {why}")

    def _break(self, promise: str, what: str, event: Event | None = None) -> None:
        assert promise in PROMISES
        self._breaks[promise] += 1
        if self._breaks[promise] <= SHOWN:
            self._broken.append(Breach(promise, what, event.index + 1 if event is not None else 0))

    def verdict(self, name: str = "controllers") -> Verdict:
        """Call once, after the last event."""
        self._unasked()
        self.counts["master epochs"] = sum(len(each.pairs) for each in self._groups.values())
        self.counts["groups"] = sum(bool(each.sets) for each in self._groups.values())
        asked = {each: self.counts[each] for each in (
            "operations", "answers", "compared", "alters acknowledged", "ids bound", "master epochs", "groups")}
        counts = {each: of for each, of in self.counts.items() if of and each not in asked}
        if self._breaks:
            return broken(name, self._broken, self._breaks, asked, counts)
        if not self.counts["compared"]:
            return Verdict(name, Valid.UNKNOWN, "no answer followed another one: nothing was asked", asked,
                           counts=counts)
        return Verdict(name, Valid.TRUE, "epochs never went back, and each has one master and one set", asked,
                       counts=counts)


# --- values ------------------------------------------------------------------------------------------------------

def words(event: Event) -> str:
    """An answer and its place, for people."""
    return f"{event.f} ({place(event)})"


def fields(event: Event) -> Mapping[str, Any]:
    """The value, which is an object. Raises ``HistoryError``."""
    if not isinstance(event.value, Mapping):
        raise HistoryError(event.line, f"the value of {event.f} is {short(event.value)}; an object is wanted")
    return event.value


def optional(event: Event, name: str) -> int | None:
    """A number of the value that may be missing. Raises ``HistoryError``."""
    found = fields(event).get(name)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
        raise HistoryError(event.line, f"{name} of {event.f} is {short(found)}; a whole number is wanted")
    return found


def number(event: Event, name: str) -> int:
    """A number of the value. Raises ``HistoryError``."""
    found = optional(event, name)
    if found is None:
        raise HistoryError(event.line, f"{event.f} has no {name}")
    return found


def members(event: Event) -> frozenset[int]:
    """The set in the value. Raises ``HistoryError``."""
    found = fields(event).get("set")
    if not isinstance(found, list | tuple) or not all(type(each) is int for each in found):
        raise HistoryError(event.line, f"set of {event.f} is {short(found)}; a list of ids is wanted")
    return frozenset(found)


def check(events: Iterable[Event], *, name: str = "controllers") -> Verdict:
    """The verdict on a whole history."""
    made = ControllersCheck()
    for event in events:
        made.add(event)
    return made.verdict(name)
