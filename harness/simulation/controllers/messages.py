"""What travels between simulated controllers and brokers, and the channels it travels by.

Contents are remoting's own commands, unframed: frames have tests of their own. Knows no rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from controller.metadata.groups import GroupKey
from remoting.command import Command

if TYPE_CHECKING:
    from harness.simulation.controllers.process import ControllerProcess

Answered = Callable[[Command | None], None]
"""What waits for an answer; None: none will come."""


@attrs.define(eq=False)
class Channel:
    """One connection from a host of brokers to one run of a controller. Each end sees its close, or does not."""

    host: str
    process: ControllerProcess
    number: int
    """At the controller: each run of it counts those it accepted, from 1."""
    turn: int
    """At the host: which of its connections this is."""
    names: dict[str, GroupKey] = attrs.field(factory=dict)
    """At the controller: the groups it spoke for."""
    asked: int = 0
    """At the host: requests so far. Each connection counts its own, from 1, as remoting does."""
    waiting: dict[int, Answered] = attrs.field(factory=dict)
    """At the host: what waits for the answer to a request of this number."""
    heard: set[int] = attrs.field(factory=set)
    """At the controller: requests. It is a TCP connection, by which none arrives twice."""
    open_here: bool = True
    """At the host."""
    open_there: bool = True
    """At the controller."""

    @property
    def kind(self) -> str:
        """Its messages keep their order, those of the host's next channel keep their own."""
        return f"net{self.turn % 2}"


@attrs.frozen(eq=False)
class Ask:
    """A request. ``number`` names it on its channel; ``sent`` orders the heartbeats of one host.

    ``known``, which nobody sends: epochs of a group that somebody knew when it was asked.
    """

    channel: Channel
    number: int
    command: Command
    sent: int = 0
    known: tuple[int, int] | None = None


@attrs.frozen(eq=False)
class Answer:
    channel: Channel
    number: int
    command: Command


@attrs.frozen(eq=False)
class Closed:
    """The other end of a channel is gone."""

    channel: Channel


@attrs.frozen(eq=False)
class Notify:
    """1008, by a connection of the controller's own. Each run of a controller counts its own, from 1."""

    process: ControllerProcess
    number: int
    address: str
    key: GroupKey
    broker_id: int
    command: Command


@attrs.frozen(eq=False)
class Told:
    """The answer to a 1008."""

    process: ControllerProcess
    number: int

