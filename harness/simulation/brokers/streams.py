"""Connections between simulated processes, which carry bytes in order or break; an end may never hear of the break.

A lost message breaks its stream as soon as the next one shows the gap. Knows no frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from harness.simulation.brokers.group import Group
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess

E_DATA, E_CLOSED = 10, 11


def _nothing(*_: object) -> None:
    pass


@attrs.define(eq=False)
class End:
    """One end of a connection, held by one run of a broker."""

    process: BrokerProcess
    number: int
    other: End | None = None
    open: bool = True
    heard: Callable[[bytes], None] = _nothing
    lost: Callable[[], None] = _nothing
    """Called when the other end is gone."""
    room: Callable[[], None] = _nothing
    """Called when sent bytes have arrived."""
    in_flight: int = 0
    spoken_ns: int | None = None
    """Time when the latest bytes of the other end reached this machine; the process may not have read them yet."""
    _arrived: int = 0
    _sent: int = 0
    _received: int = 0

    @property
    def host(self) -> Host:
        return self.process.host

    @property
    def peer(self) -> str:
        """Name of the other end's machine."""
        return "" if self.other is None else self.other.host.name

    @property
    def peer_ip(self) -> str:
        """The other end's address, as this one's system tells it."""
        return "" if self.other is None else self.other.host.ip

    @property
    def kind(self) -> str:
        return f"ha{self.number % 3}"

    def send(self, data: bytes) -> None:
        """Send bytes, perhaps in two pieces."""
        scene = self.host.scene
        if scene.plan.pieces and len(data) > 1:
            cut = scene.pieces.between(0, len(data) - 1, 0)
            if cut:
                self._send(scene, data[:cut], whole=False)
                data = data[cut:]
        self._send(scene, data)

    def _send(self, scene: Group, data: bytes, *, whole: bool = True) -> None:
        other = self.other
        if other is None or not self.open:
            return
        number, self._sent = self._sent, self._sent + 1
        self.in_flight += len(data)

        def arrived() -> None:
            if not other.open or number < other._received:
                return
            if number > other._received:
                scene.counts["stream broken"] += 1
                other.close()
                other.lost()
                return
            other._received += 1
            self.in_flight -= len(data)
            other.heard(data)
            if self.open:
                self.host.do(self.process, E_DATA, self.room)

        def reached() -> None:
            if number == other._arrived:
                other._arrived += 1
                if whole:
                    other.spoken_ns = other.host.now
            other.host.do(other.process, E_DATA, arrived)

        scene.send(self.host, other.host, self.kind, reached)

    def close(self) -> None:
        """Close this end. The other one hears of it if the network lets it."""
        if not self.open:
            return
        self.open = False
        other, host = self.other, self.host
        if other is not None:
            host.scene.send(host, other.host, self.kind,
                            lambda: other.host.do(other.process, E_CLOSED, other.hear_of_the_end))

    def hear_of_the_end(self) -> None:
        if self.open:
            self.open = False
            self.lost()
