"""A controller group of three nodes, its logs and traces put together by hand: what the questions are tried on.

Entry by entry, in ms behind ``T0``; marks are those of ``tests.analysis.by_hand``:

     1      0  term 1: n1 leads, 2 rounds, 30 ms             9   4000  term 3: n2 leads after n1, 4 rounds, 700 ms
     2     10  voters n0, n1, n2                            10   4100  broker 2 registers, only it is alive
     3-6  100  brokers 1 and 2 get ids and register         11   4600  the controller elects: broker 2, epoch 2
     7    200  broker 1 is elected, epoch 1                 12   9000  SyncStateSet {1, 2}
     8    300  SyncStateSet {1, 2}                          13   9500  SyncStateSet {2}
                                                            14  10000  SyncStateSet {1, 2}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cbor2

from tests.analysis.by_hand import Log, frame, mark_of, segment_file, state

T0 = 1_700_000_000_000
NODES = ("n0", "n1", "n2")
ALTER, APPLY, ELECT, CLEAN, REGISTER = 1, 2, 3, 5, 6
KEY = ["brokers", "b0"]


def live(*ids: int) -> dict[int, list[Any]]:
    return {number: [1, 100, 100, 2**31 - 1, False, None] for number in ids}


def command(kind: int, term: int, *fields: Any) -> bytes:
    """As the log has it: format 1, kind, term, fields."""
    return cbor2.dumps([1, kind, term, *KEY, *fields])


def noop(leader: str, before: str | None, rounds: int, took_ms: int) -> bytes:
    return cbor2.dumps({"leader": leader, "cause": "no leader heard", "rounds": rounds, "votes": [leader, "n0"],
                        "previous_leader": before, "election_ms": took_ms})


def alter(term: int, master: int, epoch: int, members: Sequence[int], set_epoch: int) -> bytes:
    return command(ALTER, term, master, epoch, list(members), set_epoch, live(1, 2))


def story(extra: Callable[[], list[tuple[int, int, int, list[bytes]]]] = list) -> list[bytes]:
    """Every frame of the group, in order. ``extra``: (ms, term, kind, payloads) of more frames at the end."""
    parts = [
        (0, 1, 2, [noop("n1", None, 2, 30)]),
        (10, 1, 3, [cbor2.dumps([list(NODES), [], [], {}])]),
        (100, 1, 1, [command(APPLY, 1, 1, "h1:1;1"), command(APPLY, 1, 2, "h2:1;2"),
                     command(REGISTER, 1, 1, "h1:1", False, live(1)),
                     command(REGISTER, 1, 2, "h2:1", False, live(1, 2))]),
        (200, 1, 1, [command(ELECT, 1, 1, 1, False, False, "default", None, live(1, 2))]),
        (300, 1, 1, [alter(1, 1, 1, [1, 2], 1)]),
        (4_000, 3, 2, [noop("n2", "n1", 4, 700)]),
        (4_100, 3, 1, [command(REGISTER, 3, 2, "h2:1", False, live(2))]),
        (4_600, 3, 1, [command(ELECT, 3, 2, None, False, False, "default", None, live(2))]),
        (9_000, 3, 1, [alter(3, 2, 2, [1, 2], 3)]),
        (9_500, 3, 1, [alter(3, 2, 2, [2], 4)]),
        (10_000, 3, 1, [alter(3, 2, 2, [1, 2], 5)]),
        *extra(),
    ]
    out: list[bytes] = []
    index = 1
    for wall_ms, term, kind, payloads in parts:
        out.append(frame(index, *payloads, term=term, kind=kind, wall_ms=T0 + wall_ms,
                         chain=mark_of(out[-1]) if out else 0))
        index += len(payloads)
    return out


def first_of(record: bytes) -> int:
    return int.from_bytes(record[24:32], "little")


def last_of(record: bytes) -> int:
    return first_of(record) + int.from_bytes(record[32:36], "little") - 1


def term_of(record: bytes) -> int:
    return int.from_bytes(record[16:24], "little")


def lay_out(records: Sequence[bytes], *, per_segment: int = 100) -> tuple[Log, dict[int, tuple[int, int]]]:
    """A log with a block per frame, so many to a segment; and by first index (segment, offset) of each frame."""
    log = Log()
    places: dict[int, tuple[int, int]] = {}
    for number, record in enumerate(records):
        if number % per_segment == 0:
            before = records[number - 1] if number else None
            log.begin(*([] if before is None else [state(1, last_of(before), term_of(before), mark_of(before))]))
        places[first_of(record)] = (log.newest, log.block(record) + 64)
    log.block()
    return log, places


def save(
    root: Path, records: Sequence[bytes], *, cluster: str = "c", per_segment: int = 100,
) -> dict[int, tuple[int, int]]:
    """The same log on all three nodes under ``root``."""
    places: dict[int, tuple[int, int]] = {}
    for node in NODES:
        log, places = lay_out(records, per_segment=per_segment)
        log.save(root / node, cluster=cluster, node=node)
    return places


def write_traces(root: Path, records: Sequence[bytes]) -> None:
    """n1 led term 1 and traced all; so did n0, which also asked for votes in term 2 in vain. Clocks: n0's is 4 s on."""
    marks = {last_of(record): mark_of(record) for record in records}

    def line(event: str, at_us: int, node: str, term: int, **fields: Any) -> str:
        clock_ns = {"n0": 5_000_000_000, "n1": 1_000_000_000}[node]
        return json.dumps(
            {"event": event, "at_ns": clock_ns + at_us * 1_000, "node": node, "group": 1, "term": term, **fields})

    def opened(node: str) -> str:
        clock_ns = {"n0": 5_000_000_000, "n1": 1_000_000_000}[node]
        return json.dumps({"event": "Opened", "version": 1, "at_ns": clock_ns, "wall_ms": T0, "process": 1,
                           "sample_every": 1, "sampled": ["Appended", "CommitAdvanced", "ReadGranted"]})

    def added(node: str, at_us: int, last: int) -> str:
        return line("Appended", at_us, node, 1, first=last, last=last, entry_term=1, kind=1, mark=marks[last])

    root.mkdir(parents=True, exist_ok=True)
    (root / "n1.ndjson").write_text("\n".join([
        opened("n1"), line("BecameLeader", 0, "n1", 1, leadership_seq=1, last_index=0, grants=["n1", "n0"],
                           cause="no leader heard", rounds=2, election_ms=30),
        added("n1", 100_000, 6), line("CommitAdvanced", 102_000, "n1", 1, index=6, counted=True),
        added("n1", 200_000, 7), added("n1", 300_000, 8),
        line("CommitAdvanced", 310_000, "n1", 1, index=8, counted=True)]) + "\n")
    (root / "n0.ndjson").write_text("\n".join([
        opened("n0"), added("n0", 101_000, 6), line("CommitAdvanced", 103_000, "n0", 1, index=6, counted=False),
        added("n0", 203_000, 7),
        line("RoundStarted", 2_000_000, "n0", 2, round=1, probe=False, asked_term=2),
        line("RoundEnded", 2_100_000, "n0", 2, round=1, probe=False, result="WAIT_TO_VOTE_NEXT", accepted=1, valid=2),
    ]) + "\n")


# --- planted faults --------------------------------------------------------------------------------------------

Planted = tuple[str, str, int]
"""(rule of the report, file, offset) of what must be found."""


def plant(root: Path) -> set[Planted]:
    """Six controller groups, one sound and five with one fault each, as clusters of their own under ``root``."""
    save(root / "sound", story(), cluster="sound")
    return {_flipped_byte(root), _cut_tail(root), _forked_suffix(root), _missing_segment(root), _reused_id(root)}


def _flipped_byte(root: Path) -> Planted:
    segment, offset = save(root / "flipped", story(), cluster="flipped")[7]
    path = segment_file(root / "flipped" / "n0", segment)
    data = bytearray(path.read_bytes())
    data[offset + 80] ^= 0x10
    path.write_bytes(data)
    return "audit: crc", str(path), offset


def _cut_tail(root: Path) -> Planted:
    segment, offset = save(root / "cut", story(), cluster="cut")[14]
    path = segment_file(root / "cut" / "n2", segment)
    path.write_bytes(path.read_bytes()[: offset + 30])
    return "audit: cut", str(path), offset - 64  # where its block begins


def _forked_suffix(root: Path) -> Planted:
    records = story()
    save(root / "forked", records, cluster="forked")
    records[-1] = frame(14, alter(3, 2, 2, [2], 5), term=3, wall_ms=T0 + 10_000, chain=mark_of(records[-2]))
    log, places = lay_out(records)
    log.save(root / "forked" / "n1", cluster="forked", node="n1")
    segment, offset = places[14]
    return "audit: log_mismatch", str(segment_file(root / "forked" / "n1", segment)), offset


def _missing_segment(root: Path) -> Planted:
    save(root / "missing", story(), cluster="missing", per_segment=4)
    path = segment_file(root / "missing" / "n0", 2)
    path.unlink()
    return "audit: missing", str(path), 0


def _reused_id(root: Path) -> Planted:
    """A copied broker: its claim to id 2 is refused, and it registers with it all the same."""
    records = story(lambda: [
        (11_000, 3, 1, [command(APPLY, 3, 2, "h9:1;9")]),
        (11_100, 3, 1, [command(REGISTER, 3, 2, "h9:1", False, live(1, 2))])])
    segment, offset = save(root / "reused", records, cluster="reused")[16]
    return "broker id", str(segment_file(root / "reused" / "n0", segment)), offset
