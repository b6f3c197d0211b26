"""Logs and traces read plainly: record by record with struct and json, no Spark, no reader of ours. What answers are
held against."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import cbor2


@attrs.frozen
class Plain:
    """One frame as it lies in a file."""

    node: str
    file: str
    offset: int
    kind: int
    term: int
    first: int
    payloads: tuple[bytes, ...]
    wall_ms: int
    chain: int
    mark: int
    size: int
    cluster: str = ""
    group: int = 1
    truncated: bool = False

    @property
    def last(self) -> int:
        return self.first + len(self.payloads) - 1

    @property
    def bytes(self) -> int:
        return sum(map(len, self.payloads))


@attrs.define
class Node:
    """What one directory holds. ``votes``: (group, term, for whom, file, byte), ``cuts`` and ``installs``: (group, last
    entry kept), ``snapshots``: (group, index, bytes, modified ms)."""

    cluster: str
    node: str
    frames: list[Plain] = attrs.field(factory=list)
    votes: list[tuple[int, int, str, str, int]] = attrs.field(factory=list)
    cuts: list[tuple[int, int]] = attrs.field(factory=list)
    installs: list[tuple[int, int]] = attrs.field(factory=list)
    snapshots: list[tuple[int, int, int, int]] = attrs.field(factory=list)


def node(directory: Path) -> Node:
    """A sound log's records, in the order of writing."""
    identity = cbor2.loads((directory / "identity").read_bytes()[8:])
    found = Node(identity["cluster"], identity["node"])
    due = None
    for path in sorted((directory / "log").glob("*.seg")):
        data, at = path.read_bytes(), 0
        while data[at : at + 4] == b"QRb1":
            (sequence,) = struct.unpack_from("<Q", data, at + 24)
            if due is not None and sequence != due:
                break  # left over from an earlier use of the file
            due = sequence + 1
            end = at + 64 + struct.unpack_from("<I", data, at + 44)[0]
            at += 64
            while at < end:
                if data[at : at + 4] == b"QRl1":
                    body = data[at + 32 : at + 32 + struct.unpack_from("<I", data, at + 16)[0]]
                    _local(found, data[at + 4], struct.unpack_from("<Q", data, at + 8)[0], body, str(path), at)
                    at += 32 + len(body)
                else:
                    found.frames.append(_frame(found, str(path), data, at))
                    at += found.frames[-1].size
    for path in sorted((directory / "snapshots").glob("*.snap")):
        group, index, _ = re.split("[-.]", path.name, maxsplit=2)
        found.snapshots.append((int(group), int(index), path.stat().st_size, path.stat().st_mtime_ns // 1_000_000))
    return found


def _frame(found: Node, file: str, data: bytes, at: int) -> Plain:
    group, term, first, count, body, wall_ms = struct.unpack_from("<QQQIIQ", data, at + 8)
    chain, _, mark = struct.unpack_from("<III", data, at + 52)
    lengths = struct.unpack_from(f"<{count}I", data, at + 64)
    payloads, start = [], at + 64 + 4 * count
    for length in lengths:
        payloads.append(data[start : start + length])
        start += length
    return Plain(found.node, file, at, data[at + 4], term, first, tuple(payloads), wall_ms, chain, mark, 64 + body,
                 found.cluster, group)


def _local(found: Node, kind: int, group: int, body: bytes, file: str, at: int) -> None:
    if kind in (1, 4):
        term, voted, length = struct.unpack_from("<QBH", body, 20 if kind == 4 else 0)
        if voted:
            found.votes.append((group, term, body[len(body) - length :].decode(), file, at))
        return
    (index,) = struct.unpack_from("<Q", body)
    (found.cuts if kind == 2 else found.installs).append((group, index))
    found.frames = [
        attrs.evolve(frame, truncated=True) if frame.group == group and (kind == 3 or frame.last > index) else frame
        for frame in found.frames]


def frames(node_directory: Path) -> Iterator[Plain]:
    """Every frame of a sound log, in the order of writing."""
    yield from node(node_directory).frames


def traces(directory: Path, cluster: str) -> Iterator[dict[str, Any]]:
    """Every event of the trace files there, with ``cluster``, ``file`` and ``wall_us``."""
    for path in sorted(directory.glob("*.ndjson")):
        opened: dict[str, Any] = {}
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "Opened":
                opened = event
                continue
            wall_us = (opened["wall_ms"] * 1_000_000 + event["at_ns"] - opened["at_ns"]) // 1_000
            yield {**event, "cluster": cluster, "file": str(path), "wall_us": wall_us,
                   "sample_every": opened["sample_every"]}
