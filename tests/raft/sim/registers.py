"""A register, and clients that read and write it: the subject of explorations. Knows nothing of faults."""

from __future__ import annotations

import json

import raft
from raft.sim import Choices, Operation


class Register(raft.StateMachine[bytes, bytes, str]):
    """One value. Its snapshot is right."""

    def __init__(self) -> None:
        self.value = b""
        self.writes = 0

    def apply(self, command: bytes) -> bytes:
        before, self.value = self.value, command
        self.writes += 1
        return before

    def query(self, data: bytes) -> str:
        return self.value.decode()

    def snapshot(self) -> bytes:
        return json.dumps([self.value.decode(), self.writes]).encode()

    def restore(self, data: bytes) -> None:
        value, self.writes = json.loads(data)
        self.value = value.encode()


def reads_and_writes(choices: Choices) -> Operation:
    if choices.random() < 0.3:
        return Operation(query=b"", f="read", key="x")
    return Operation(command=b"%d" % choices.serial, f="write", key="x", value=choices.serial)
