"""State machines for simulated clusters. Know nothing of Raft."""

from __future__ import annotations


class Counter:
    """Adds up numbers."""

    def __init__(self) -> None:
        self.n = 0

    def apply(self, command: bytes) -> int:
        self.n += int(command)
        return self.n

    def snapshot(self) -> bytes:
        return str(self.n).encode()

    def restore(self, data: bytes) -> None:
        self.n = int(data)
