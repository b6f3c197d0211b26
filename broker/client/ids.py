"""Unique ids of messages, made by the client as Java's does: they say where and when a message was sent.

    8 digits     IPv4 address                (32 for IPv6)
    4            lower half of the process id
    8            chance, fixed for the process; Java has the hash of its class loader there
    8            milliseconds since the month began
    4            counter

No clock: the time comes with each call. Source: ``MessageClientIDSetter`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address


class UniqueIds:
    """``month_began`` gives the milliseconds at which the month of a time began, and the next begins."""

    def __init__(self, host: str, process_id: int, chance: int, month_began: Callable[[int], tuple[int, int]]) -> None:
        self._prefix = (ip_address(host).packed + (process_id & 0xFFFF).to_bytes(2, "big")
                        + (chance & 0xFFFFFFFF).to_bytes(4, "big")).hex().upper()
        self._month_began = month_began
        self._from_ms = self._until_ms = 0
        self._count = 0

    def next(self, now_ms: int) -> str:
        """Make another id. Ids are unique as long as fewer than 65,536 are made in a millisecond."""
        if not self._from_ms <= now_ms < self._until_ms:
            self._from_ms, self._until_ms = self._month_began(now_ms)
        self._count = count = self._count + 1 & 0xFFFF
        return f"{self._prefix}{now_ms - self._from_ms:08X}{count:04X}"
