"""The HA port of a master without its streams, for either protocol: which core hears what comes, which connections end.

A broker that is no master yet lets connections wait for a while: a slave may have heard of the new master before the
master itself has. When there are too many, ``broker.ha.places`` says which ones end.
Sources: ``DefaultHAConnection``, ``AutoSwitchHAConnection`` and ``HAService.AcceptSocketService`` of RocketMQ.
It knows bytes and the journal, and neither roles nor what a frame means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import attrs

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.master import Close, Idle, LogView
from broker.ha.places import Place, Stage, superfluous
from broker.journal import Journal

NS_PER_S: Final = 1_000_000_000


class Frame(NamedTuple):
    """Write ``data``, then ``size`` bytes of the log from ``offset``."""

    data: bytes
    offset: int = -1
    """Offset of the log from which the bytes come; -1: they are no part of it."""
    size: int = 0


class Side(Protocol):
    """The master's core of one protocol, by connection numbers; ``HaFrameError`` from ``heard`` ends a connection."""

    def opened(self, link: int, host: str, now_ns: int) -> None: ...

    def heard(self, link: int, data: bytes, now_ns: int) -> list[Close]: ...

    def closed(self, link: int) -> None: ...

    def tick(self, now_ns: int) -> list[Close]: ...

    def standing(self, link: int) -> Stage: ...

    def next_frame(self, link: int, log: LogView, now_ns: int) -> Frame | Idle | Close: ...


@attrs.define(eq=False)
class Link(ABC):
    """One connection that the port has accepted."""

    number: int
    peer: str
    accepted_ns: int
    side: Side | None = None
    """None before this broker is master, and when it is no longer."""
    spoke: bool = False
    began: bool = False
    """The log is being sent: acknowledgements have nothing to tell its writer any more."""
    reason: str = ""
    next: int = 0
    """Offset behind what was sent."""
    rate: int = 0
    """Bytes in the last second or so."""
    _sent_bytes: int = 0
    _counted: tuple[int, int] = (0, 0)

    @abstractmethod
    def ring(self) -> None:
        """Wake the writer: it may have something to send."""

    @abstractmethod
    def opened(self) -> None:
        """The connection has a core now, which hears what has waited."""

    @abstractmethod
    def end(self) -> None:
        """Close the stream of this connection."""

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def place(self) -> Place:
        standing = Stage.SILENT if self.side is None else self.side.standing(self.number)
        return Place(self.number, self.host, max(standing, Stage.SPOKE) if self.spoke else standing)

    def close(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.end()

    def sent(self, offset: int, size: int) -> None:
        self._sent_bytes += size
        if offset >= 0:
            self.began, self.next = True, offset + size

    def count(self, now_ns: int) -> None:
        """Compute ``rate``; call it now and then."""
        since_ns, before = self._counted
        if now_ns - since_ns >= NS_PER_S:
            self.rate = (self._sent_bytes - before) * NS_PER_S // (now_ns - since_ns)
            self._counted = now_ns, self._sent_bytes


LinkT = TypeVar("LinkT", bound=Link)


class Port(Generic[LinkT]):
    """The port and its connections. ``serve`` and ``drop`` say which core hears what comes.

    ``advanced`` is called when somebody acknowledged or was lost; ``changed`` when a slave came or went.
    """

    def __init__(self, journal: Journal, config: HaConfig, *, advanced: Callable[[], None],
                 changed: Callable[[], None]) -> None:
        self.links: dict[int, LinkT] = {}
        self._journal, self._config = journal, config
        self._advanced, self._changed = advanced, changed
        self._side: Side | None = None
        self._number = 0

    # --- roles -----------------------------------------------------------------------------------------------

    def serve(self, side: Side) -> None:
        """This broker is master now: serve the slaves that wait."""
        self._side = side
        for link in [*self.links.values()]:
            if link.side is None and not link.reason:
                self._open(link, side)

    def drop(self, reason: str) -> None:
        """This broker is master no longer: end the connections that it served."""
        self._side = None
        self._close([Close(link.number, reason) for link in self.links.values() if link.side is not None])

    def wake(self) -> None:
        """Look at all connections: there may be something to send."""
        for link in self.links.values():
            link.ring()

    def tick(self, now_ns: int) -> None:
        """Time passed: call this some times in a second."""
        if self._side is not None:
            self._close(self._side.tick(now_ns))
        config = self._config
        for link in [*self.links.values()]:
            link.count(now_ns)
            if link.side is None:
                limit_ms = config.role_wait_ms if link.spoke else config.handshake_timeout_ms
                if now_ns - link.accepted_ns >= limit_ms * NS_PER_MS:
                    link.close("this broker is not the master" if link.spoke else f"no handshake in {limit_ms} ms")
        self.wake()
        if self.links:
            self._journal.tick_by(0)

    # --- connections -----------------------------------------------------------------------------------------

    def _new_number(self) -> int:
        """A number for a connection, counted from 1 in each life of this process."""
        self._number += 1
        return self._number

    def _came(self, link: LinkT) -> None:
        """A connection was accepted on this port."""
        self._journal.stir()
        self.links[link.number] = link
        if self._side is not None:
            self._open(link, self._side)
        if len(self.links) > self._config.connections_max:
            there = (link.place for link in self.links.values() if not link.reason)
            self._close([Close(number, "others need its place")
                         for number in superfluous(there, self._config.connections_max)])

    def _heard(self, link: LinkT, data: bytes) -> None:
        """Bytes came on this connection: its core hears them. Raises ``HaFrameError``."""
        assert link.side is not None, "before that, what comes waits"
        self._close(link.side.heard(link.number, data, self._journal.now_ns()))
        if not link.began:
            link.ring()
        self._advanced()

    def _next(self, link: LinkT) -> Frame | Idle | Close:
        journal = self._journal
        file_bytes = journal.log.file_bytes
        assert link.side is not None, "nobody writes to a connection that is over"
        view = LogView(journal.begin, journal.end, max(journal.begin, journal.end - journal.end % file_bytes),
                       file_bytes)
        return link.side.next_frame(link.number, view, journal.now_ns())

    def _body(self, frame: Frame) -> bytes:
        body = self._journal.read(frame.offset, frame.size) if frame.size else b""
        assert len(body) == frame.size, "a frame lies within one file and below the end"
        return body

    def _open(self, link: LinkT, side: Side) -> None:
        link.side = side
        side.opened(link.number, link.host, self._journal.now_ns())
        link.opened()
        self._changed()

    def _close(self, closes: Iterable[Close]) -> None:
        for close in closes:
            link = self.links.get(close.connection)
            if link is not None:
                link.close(close.reason)
                self._closed(link)

    def _closed(self, link: LinkT) -> None:
        side, link.side = link.side, None
        if side is not None:
            side.closed(link.number)
            self._changed()
            self._advanced()
