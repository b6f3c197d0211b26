"""Moments that several parts of a broker are told of, in the order of their places, whichever joined first.

``ORDERS`` has them all. Any other event has one listener, an attribute that is called. A moment knows neither what
happened nor what its listeners do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, ParamSpec

import attrs

P = ParamSpec("P")

WATCH: Final = "watch"
"""The last place of every moment, for simulators and tests, which look at what the others made of it."""


@attrs.frozen
class Order:
    """The listeners of a moment, in the order of their calls."""

    when: str
    places: Mapping[str, str]
    """Places, each with what is done there."""
    why: str
    """Reason for this order."""


ORDERS: Final[Mapping[str, Order]] = {
    "Journal.grown": Order(
        "the system has more of the log, or the disk has", {
            "role": "a master counts itself, and confirms what enough replicas hold; a slave that serves its log sends",
            "copying": "a slave acknowledges what it stored",
        }, "what is confirmed is confirmed before anybody is told of it"),
    "Journal.settled": Order(
        "in each turn, behind `grown`", {
            "puts": "puts that are written, flushed or acknowledged are answered",
            "role": "a step that waited for the log goes on; the mark of what is confirmed is kept",
        }, "a step that opens or closes writes finds no put that could have been answered"),
    "Journal.ticks": Order(
        "when something is due, and soon after something happened; `tick_interval_ms` apart at least", {
            "puts": "puts whose time is over are answered",
            "parts": "parts that are due tick, in their order",
            "demand": "the demanded minimum comes into force",
            "role": "connections are looked after, and the SyncStateSet with what its members hold",
            "copying": "a slave reports, and leaves a master that is silent",
        }, "a put that is late is late, whoever acknowledges in this tick; the SyncStateSet is counted by the minimum "
           "that is in force"),
    "Journal.noted": Order(
        "a message of a transaction, or one that is marked, is about to be shown", {
            "parts": "parts learn what it decides, on every replica",
        }, "one that is not known to be decided could be decided again"),
    "Journal.cutting": Order(
        "the log is about to be cut, unless one of them raises `OSError`", {
            "parts": "parts forget on disk what stands behind its new end",
            "role": "the mark of what is confirmed goes back",
        }, "each may be done alone: what is forgotten is read again; the mark is the last, as it tells who is behind"),
    "Journal.was_cut": Order(
        "the log was cut", {
            "parts": "parts forget what stood behind its end",
        }, "what comes in its place is heard of next"),
    "Journal.disk_changed": Order(
        "the disk became full, stalled or well, before `ticks`", {
            "role": "controllers are told",
            "copying": "a slave in trouble leaves its master; one that is well again comes back",
        }, "controllers hear why a slave goes before its master misses it"),
    "Journal.on_failure": Order(
        "the disk failed, once", {
            "role": "the next start is told to doubt the log",
            "server": "the broker ends",
        }, "what the next start must know is written before this process goes"),
    "Group.changed": Order(
        "name servers list other members of the group, where slaves may act for the master", {
            "role": "a slave knows whose tables it copies, and whether it acts; a master how many live",
            "parts": "parts hear who lives",
        }, "who hears of members may ask for the role that follows from them"),
    "TopicTable.on_delete": Order(
        "a topic is deleted, before `on_change`", {
            "queues": "its queues go",
            "parts": "what parts keep of it goes, such as its groups' offsets",
            "sends": "sends to it that a young master holds are refused",
        }, "what a group has read of a queue is known as long as the queue is there"),
    "TopicTable.narrowed": Order(
        "topics are gone, here or from the master's table, have fewer queues to read, or may not be read any more", {
            "waiting": "pulls and POPs that wait for their messages are tried again",
        }, "they find why they cannot read"),
    "GroupTable.gone": Order(
        "a group is deleted", {
            "waiting": "its pulls and POPs that wait are refused",
        }, "tried again, they would make the group anew"),
    "GroupTable.barred": Order(
        "groups were changed that may not read, or not every topic", {
            "waiting": "their pulls and POPs that wait are tried again",
        }, "they find why they may not read"),
    "TopicTable.on_change": Order(
        "a topic is another, or its version", {
            "file": "the file is to be written",
            "sends": "sends look it up anew",
            "name servers": "it is registered anew",
        }, "each of them notes it, and acts later: a send that finds the topic new waits for the file that was noted"),
}


class Listener(Generic[P]):
    """One listener, shared by the code that tells it and the code that only passes it on."""

    __slots__ = ("call",)

    def __init__(self) -> None:
        self.call: Callable[P, object] = _nobody

    @property
    def is_heard(self) -> bool:
        """Return whether a listener is there. Callers that tell of each message need not call for nothing."""
        return self.call is not _nobody


def _nobody(*args: object, **kwargs: object) -> None:
    """Stands for a listener that is not there."""


class Moment(Generic[P]):
    """A moment: call it, and all that joined are called. A listener that joins or leaves meanwhile counts next time."""

    def __init__(self, name: str) -> None:
        """``name`` is one of ``ORDERS``."""
        self._at: dict[str, list[Callable[P, object]]] = {place: [] for place in (*ORDERS[name].places, WATCH)}
        self._calls: tuple[Callable[P, object], ...] = ()

    def join(self, place: str, call: Callable[P, object]) -> None:
        """Add a listener, after those that have this place already."""
        self._at[place].append(call)
        self._order()

    def leave(self, place: str, call: Callable[P, object]) -> None:
        self._at[place].remove(call)
        self._order()

    def _order(self) -> None:
        self._calls = tuple(call for calls in self._at.values() for call in calls)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for call in self._calls:
            call(*args, **kwargs)
