"""The process whose power is cut: three voters on three directories, writers that note every acknowledgement.

Run by the power-cut campaign under the recorder: ``python -m tests.powercut.victim ROOT SYNC``. Acknowledged command
numbers go to ROOT/acks, in the order of the recording; ends only by a kill.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import trio

import raft
from raft.config import Config, Sync

WRITERS = 24
NUMBER = struct.Struct("<Q")


class Numbers:
    """Keeps every number it was given; a snapshot is all of them."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def apply(self, command: bytes) -> None:
        self.seen.append(command[: NUMBER.size])

    def snapshot(self) -> bytes:
        return b"".join(self.seen)

    def restore(self, data: bytes) -> None:
        self.seen = [data[at : at + NUMBER.size] for at in range(0, len(data), NUMBER.size)]


def config(sync: Sync) -> Config:
    """Small segments, so that a short run rolls, recycles and purges; nothing else differs from the defaults."""
    return Config(
        sync=sync, election_timeout_ms=300, heartbeat_interval_ms=60, entry_bytes_max=16 << 10,
        frame_bytes_max=16 << 10, append_bytes_max=64 << 10, snapshot_chunk_bytes=64 << 10,
        message_bytes_max=128 << 10, segment_bytes=256 << 10, snapshot_tail_entries=200)


async def main(root: Path, sync: Sync) -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    peers = {f"n{i}": f"127.0.0.1:{s.getsockname()[1]}" for i, s in enumerate(sockets)}
    for held in sockets:
        held.close()
    acks = os.open(root / "acks", os.O_CREAT | os.O_WRONLY)
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        nodes = [
            await stack.enter_async_context(raft.open_node(
                name, peers=peers, data_dir=root / name, state_machine=Numbers(), bootstrap=True, config=config(sync)))
            for name in peers]
        numbers = iter(range(1, 1 << 62))
        turn = 0

        async def write(writer: int) -> None:
            padding = bytes(16 * (writer % 8) ** 2)
            while True:
                if writer and turn % 2:  # every other time one writes alone, so that the event loop syncs, not a thread
                    await trio.sleep(0.01)
                    continue
                number = NUMBER.pack(next(numbers))
                leading = next((node for node in nodes if node.is_leader), None)
                try:
                    if leading is None:
                        await trio.sleep(0.005)
                        continue
                    await leading.propose(number + padding)
                    os.write(acks, number)
                except raft.Outcome:
                    await trio.sleep(0.001)

        for writer in range(WRITERS):
            nursery.start_soon(write, writer)
        while True:  # snapshots, so that logs are purged; hand-overs, so that logs diverge
            await trio.sleep(0.15)
            turn += 1
            try:
                await nodes[turn % 3].take_snapshot()
                leading = next((node for node in nodes if node.is_leader), None)
                if leading is not None and turn % 3 == 0:
                    await leading.transfer_leadership()
            except raft.RaftError:
                await trio.sleep(0.01)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), Sync(sys.argv[2]))
