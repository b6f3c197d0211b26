"""Typed one-way links between nodes, which deliver, delay, double or lose messages.

A link delivers in order after a fixed latency, unless a fault of its profile hits a message, which the tape decides. It
can be cut, or hold everything back until released. A link has a kind ("raft", "client", ...), so a fault can hit one
kind of traffic alone. This module knows neither what a message is nor what nodes do with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from raft.sim.tape import Chance, Stream, Tape
from raft.sim.world import World

Receiver = Callable[[Any], None]
Cut = bool | Callable[[Any], bool]
"""Says what a cut link drops: True: everything; a predicate: messages for which it holds."""
LATENCY_NS: Final = 500_000


@attrs.frozen(kw_only=True)
class LinkProfile:
    """Faults of a link, with the chance that each hits a message. The default loses, delays and doubles nothing."""

    latency_ns: int = LATENCY_NS
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Chance that later messages may overtake this one."""
    delay: float = 0.0
    """Chance that a message is late and delays all that follow."""
    delay_ns: int = 2_000_000
    """Longest lateness of a delayed or overtaken message, and of a duplicate."""
    capacity: int = 4_096
    """Messages in flight at once; more are dropped."""


class Link:
    """One direction between two nodes."""

    __slots__ = (
        "_arrives", "_counts", "_fate", "_generate", "_last", "_odds", "_receive", "_world", "cut", "held",
        "in_flight", "kind", "profile", "source", "target",
    )

    def __init__(
        self, network: Network, kind: str, source: str, target: str, fate: Stream, profile: LinkProfile,
    ) -> None:
        self.kind, self.source, self.target = kind, source, target
        self._world, self._counts = network.world, network.counts
        self._receive = network.receiver(self)
        self._arrives = self._arrive
        self.cut: Cut = False
        self.held: list[Any] | None = None
        """Messages kept back while the link is held; None: not held."""
        self.in_flight = 0
        self._last = 0
        self._fate = fate
        self.shape(profile)

    def shape(self, profile: LinkProfile) -> None:
        """Treat messages by this profile from now on."""
        self.profile = profile
        self._odds, self._generate = _fates(profile)

    def send(self, message: Any) -> None:
        """Take a message at the present world time. It may arrive once, twice or never."""
        profile = self.profile
        fate = self._fate.seldom(self._odds, self._generate)
        if self.cut and (self.cut is True or self.cut(message)):
            self._counts["cut"] += 1
            return
        if self.in_flight >= profile.capacity:
            self._counts["overflow"] += 1
            return
        if self.held is not None:
            self._counts["hold"] += 1
            self.held.append(message)
            self.in_flight += 1
            return
        world = self._world
        when = world.now + profile.latency_ns
        if fate is None:
            if when < self._last:
                when = self._last
            self._last = when
        else:
            what, extra_ns = fate
            self._counts[what] += 1
            if what == "loss":
                return
            if what == "reorder":
                when += extra_ns
            elif what == "delay":
                self._last = when = max(when + extra_ns, self._last)
            else:
                self._last = when = max(when, self._last)
                self._fly(when + extra_ns, message)
        self.in_flight += 1
        world.at(when, self._arrives, message)

    def hold(self) -> None:
        """Keep messages back until ``release``."""
        if self.held is None:
            self.held = []

    def release(self) -> None:
        """Send the held messages on, in order."""
        held, self.held = self.held, None
        for message in held or ():
            self.in_flight -= 1
            self._last = max(self._world.now + self.profile.latency_ns, self._last)
            self._fly(self._last, message)

    def divert(self) -> list[Any]:
        """Stop holding, and take the held messages out. ``bring`` delivers them later."""
        held, self.held = self.held or [], None
        self.in_flight -= len(held)
        return held

    def bring(self, messages: Iterable[Any]) -> None:
        """Deliver diverted messages at once and in order, after messages that were sent later."""
        for message in messages:
            self._fly(self._world.now + 1, message)

    def _fly(self, when: int, message: Any) -> None:
        self.in_flight += 1
        self._world.at(when, self._arrives, message)

    def _arrive(self, message: Any) -> None:
        self.in_flight -= 1
        if self.cut and (self.cut is True or self.cut(message)):
            self._counts["cut"] += 1
        else:
            self._receive(message)


def _fates(profile: LinkProfile) -> tuple[float, Callable[[float, Chance], list[Any]]]:
    """Return the chance of a fault, and a function that makes it: one number chooses the fault, another the delay."""
    lost = profile.loss
    doubled = lost + profile.duplicate
    overtaken = doubled + profile.reorder
    late = overtaken + profile.delay
    span = profile.delay_ns

    def fate(number: float, chance: Chance) -> list[Any]:
        if number < lost:
            return ["loss", 0]
        extra_ns = 1 + int(chance() * span)
        return ["duplicate" if number < doubled else "reorder" if number < overtaken else "delay", extra_ns]

    return late, fate


class Network:
    """All links, made when first used. ``receiver(link)`` makes the function that takes each message.

    ``counts`` says how often each fault was applied to a message: loss, duplicate, reorder, delay, cut, hold, overflow.
    """

    def __init__(
        self, world: World, tape: Tape, receiver: Callable[[Link], Receiver], profile: LinkProfile | None = None,
    ) -> None:
        self.world, self.receiver = world, receiver
        self.counts: Counter[str] = Counter()
        self._tape = tape
        self.profile = profile or LinkProfile()
        self._links: dict[tuple[str, str, str], Link] = {}
        self._cut: set[tuple[str | None, str, str]] = set()
        self._narrow: Cut = False
        self.make: Callable[..., Link] = Link
        """Makes each link."""
        self.version = 0
        """Rises whenever a link is cut or healed."""

    def link(self, source: str, target: str, kind: str = "raft") -> Link:
        """Return the link of this kind from ``source`` to ``target``."""
        key = kind, source, target
        link = self._links.get(key)
        if link is None:
            stream = self._tape.stream(f"link/{kind}/{source}>{target}")
            link = self._links[key] = self.make(self, kind, source, target, stream, self.profile)
            link.cut = not self.open(source, target, kind) or self._narrow
        return link

    def links(self) -> Iterable[Link]:
        """Return the links made so far, in a fixed order."""
        return [self._links[key] for key in sorted(self._links)]

    def shape(self, profile: LinkProfile) -> None:
        """Give all links, present and future, this profile."""
        self.profile = profile
        for link in self._links.values():
            link.shape(profile)

    def cut(self, source: str, target: str, kind: str | None = None) -> None:
        """Drop all messages from ``source`` to ``target``, those in flight too. ``kind`` None: of all kinds."""
        self._cut.add((kind, source, target))
        self._apply()

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Undo cuts: all of them, those from ``source``, or those from ``source`` to ``target``."""
        self._cut = {each for each in self._cut
                     if source not in (None, each[1]) or target not in (None, each[2])}
        self._apply()

    def partition(self, groups: Iterable[Iterable[str]], kind: str | None = None) -> None:
        """Cut every link between nodes of different groups, both ways. Nodes in no group keep all links."""
        sides = [tuple(group) for group in groups]
        for side in sides:
            for other in sides:
                if side is not other:
                    self._cut.update((kind, source, target) for source in side for target in other)
        self._apply()

    def narrow(self, stops: Callable[[Any], bool] | None) -> None:
        """Let all links drop the messages for which ``stops`` holds; None: no longer."""
        self._narrow = stops or False
        self._apply()

    def open(self, source: str, target: str, kind: str = "raft") -> bool:
        """Return whether messages of this kind can pass this way."""
        return (kind, source, target) not in self._cut and (None, source, target) not in self._cut

    def _apply(self) -> None:
        self.version += 1
        for (kind, source, target), link in self._links.items():
            link.cut = not self.open(source, target, kind) or self._narrow
