"""Messages between simulated controllers and brokers, and the channels that carry them.

Messages carry remoting's own commands, unframed: frames have tests of their own. Knows no rules.
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
"""Called with an answer, or with None if none will come."""


@attrs.define(eq=False)
class Channel:
    """One connection from a host of brokers to one run of a controller. Either end may miss its close."""

    host: str
    process: ControllerProcess
    number: int
    """The controller's number for it: each run counts the connections it accepted, from 1."""
    turn: int
    """The host's number for it, in the order of its connections."""
    names: dict[str, GroupKey] = attrs.field(factory=dict)
    """At the controller: the groups whose heartbeats came by it."""
    asked: int = 0
    """At the host: requests so far. Each connection counts its own, from 1, as remoting does."""
    waiting: dict[int, Answered] = attrs.field(factory=dict)
    """At the host: number of an open request -> its callback."""
    heard: set[int] = attrs.field(factory=set)
    """At the controller: requests that arrived. A duplicate is dropped, since this is a TCP connection."""
    open_here: bool = True
    """True while the host's end is open."""
    open_there: bool = True
    """True while the controller's end is open."""

    @property
    def kind(self) -> str:
        """Kind of the channel's links; the next channel has another one, as order holds within one channel only."""
        return f"net{self.turn % 2}"


@attrs.frozen(eq=False)
class Ask:
    """A request. ``number`` names it on its channel; ``sent`` orders the heartbeats of one host.

    ``known`` is for the watch alone: epochs of a group that some process knew when this was sent.
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
    """Tells that the other end of a channel is gone."""

    channel: Channel


@attrs.frozen(eq=False)
class Notify:
    """A notification (1008), by a connection of the controller's own. Each run of a controller counts from 1."""

    process: ControllerProcess
    number: int
    address: str
    key: GroupKey
    broker_id: int
    command: Command


@attrs.frozen(eq=False)
class Told:
    """The broker's answer to a notification (1008)."""

    process: ControllerProcess
    number: int

