"""A wire in user space: packets of chosen ways pass through this process, which makes of them what a bad link does.

    python -m harness.nemesis.wire TAP CARD SEED CARD=ADDRESS ...

It is a port of the bridge. A host whose way to another is shaped has this port's card as the other's neighbour; each
of its packets is read here, waits, and goes on to the card of whom it is for. Ways that nobody shapes never come here.
Lines of JSON on standard input say the shapes; each is answered by an empty line on standard output when it holds.
It knows cards and addresses, and nothing of servers. It ends with its standard input.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import select
import struct
import sys
import time
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from random import Random
from typing import Final

import attrs

from harness.nemesis.shaping import Link, Shape

DEVICE: Final = Path("/dev/net/tun")
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP: Final = 0x0002
_IFF_NO_PI: Final = 0x1000
_FRAME: Final = 1 << 16
_AT_ONCE: Final = 64
"""Packets that are read before those that are due go out."""


def opened(name: str) -> int:
    """Opens a new card. Raises ``OSError``."""
    fd = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except BaseException:
        os.close(fd)
        raise
    return fd


def impossible() -> str:
    """Return why there can be no wire in this network namespace; empty if there can."""
    try:
        os.close(opened(""))
    except OSError as error:
        return f"no card of a program can be made here: {DEVICE}: {error.strerror}"
    return ""


@attrs.define
class Packets:
    """The packets that are on their way. ``cards`` are the hosts' by their addresses, as in packets."""

    fd: int
    seed: str
    own: bytes
    cards: dict[bytes, bytes]
    links: dict[bytes, Link] = attrs.field(factory=dict)
    """Source and target, as they stand in a packet -> the link."""
    _waiting: list[tuple[int, int, bytes]] = attrs.field(factory=list)
    _number: int = 0

    def shape(self, source: str, target: str, shape: Shape | None) -> None:
        """Set the shape of that way for packets from now on; None: they pass unharmed."""
        way = IPv4Address(source).packed + IPv4Address(target).packed
        if shape is None:
            self.links.pop(way, None)
        elif way in self.links:
            self.links[way].shape = shape
        else:
            self.links[way] = Link(shape, Random(f"{self.seed} {source} {target}"))

    def read(self) -> None:
        """Take the packets that have come."""
        now_ns = time.monotonic_ns()
        for _ in range(_AT_ONCE):
            try:
                frame = os.read(self.fd, _FRAME)
            except BlockingIOError:
                return
            card = self.cards.get(frame[30:34])
            if card is None or frame[:6] != self.own or frame[12:14] != b"\x08\x00":
                continue  # the bridge floods frames for unknown addresses to all ports
            frame = card + self.own + frame[12:]
            link = self.links.get(frame[26:34])
            for at_ns in (now_ns,) if link is None else link.sent(now_ns, len(frame)):
                if at_ns <= now_ns and not self._waiting:
                    self._write(frame)
                else:
                    self._number += 1
                    heapq.heappush(self._waiting, (at_ns, self._number, frame))

    def write(self) -> float | None:
        """Let go what is due; seconds until the next one is, None without one."""
        waiting = self._waiting
        while waiting:
            left_ns = waiting[0][0] - time.monotonic_ns()
            if left_ns > 0:
                return left_ns / 1e9
            self._write(heapq.heappop(waiting)[2])
        return None

    def _write(self, frame: bytes) -> None:
        with suppress(BlockingIOError):  # the card's queue is full: drop the packet, as a switch does
            os.write(self.fd, frame)


def _card(written: str) -> bytes:
    return bytes.fromhex(written.replace(":", ""))


def main() -> int:
    """Carry packets until standard input ends."""
    name, own, seed, *hosts = sys.argv[1:]
    fd = opened(name)
    cards = {}
    for host in hosts:
        card, _, address = host.partition("=")
        cards[IPv4Address(address).packed] = _card(card)
    wire = Packets(fd, seed, _card(own), cards)
    sys.stdout.write("\n")
    sys.stdout.flush()
    said = b""
    while True:
        ready, _, _ = select.select([fd, 0], [], [], wire.write())
        if fd in ready:
            wire.read()
        if 0 in ready:
            more = os.read(0, _FRAME)
            if not more:
                return 0
            *lines, said = (said + more).split(b"\n")
            for line in lines:
                told = json.loads(line)
                wire.shape(told["source"], told["target"], None if told["shape"] is None else Shape(**told["shape"]))
                sys.stdout.write("\n")
                sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
