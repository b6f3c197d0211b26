"""Four clusters under one path, put together by hand, with nodes and groups of the same names and numbers.

``c`` is the scene of ``tests.analysis.scene``. ``d`` has controllers too, of broker group ``b9``, and a group 2 that is
no controllers'; its n1 was cut off with a deposed leader's entry, and n0 has cut off the same. ``e`` is one node that
was given a snapshot up to entry 5 of its group 1, which is no controllers'. ``f`` has purged its logs: of group 1 the
no-op of term 4 is gone and that of term 7 there, group 2 has term 5 alone, of which a trace tells the leader, and group
3 begins with the no-op of term 6. Of d's group 1, in ms behind ``T0``:

     1      0  term 1: n0 leads, 1 round, 15 ms             9   2000  term 3: n2 leads after n0, 3 rounds, 250 ms
     2      5  voters n0, n1, n2                           10   2100  another broker claims id 2 and is refused,
     3-6   50  brokers 1 and 2 get ids and register        11   2150  and registers with it
     7    300  broker 1 is elected, epoch 1                12   2500  SyncStateSet {1}
     8    400  SyncStateSet {1, 2}                         13   3000  unclean: broker 2, epoch 2, as 1 is gone
     9   1900  (term 1, on n1 alone)                       14   3200  it sees itself alone
                                                           15   3300  broker 2 is gone, too: epoch 3 without a master
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cbor2

from tests.analysis.by_hand import Log, frame, hard_state, install, mark_of, state, truncate
from tests.analysis.scene import ALTER, APPLY, ELECT, NODES, REGISTER, T0, lay_out, live, save, story, write_traces

KEY = ["brokers", "b9"]


def command(kind: int, term: int, *fields: Any) -> bytes:
    return cbor2.dumps([1, kind, term, *KEY, *fields])


def noop(leader: str, before: str | None, rounds: int, took_ms: int, cause: str) -> bytes:
    return cbor2.dumps({"leader": leader, "cause": cause, "rounds": rounds, "votes": ["n0", "n2"],
                        "previous_leader": before, "election_ms": took_ms})


def chained(parts: list[tuple[int, int, int, list[bytes]]], group: int = 1, *, index: int = 1) -> list[bytes]:
    """Frames of (ms, term, kind, payloads), one behind the other from entry ``index`` on."""
    out: list[bytes] = []
    for wall_ms, term, kind, payloads in parts:
        out.append(frame(index, *payloads, term=term, kind=kind, group=group, wall_ms=T0 + wall_ms,
                         chain=mark_of(out[-1]) if out else 0))
        index += len(payloads)
    return out


def controllers() -> list[bytes]:
    """Group 1 of ``d``."""
    return chained([
        (0, 1, 2, [noop("n0", None, 1, 15, "no leader heard")]),
        (5, 1, 3, [cbor2.dumps([list(NODES), [], [], {}])]),
        (50, 1, 1, [command(APPLY, 1, 1, "h1:1;1"), command(APPLY, 1, 2, "h2:1;2"),
                    command(REGISTER, 1, 1, "h1:1", False, live(1)),
                    command(REGISTER, 1, 2, "h2:1", False, live(1, 2))]),
        (300, 1, 1, [command(ELECT, 1, 1, 1, False, False, "default", None, live(1, 2))]),
        (400, 1, 1, [command(ALTER, 1, 1, 1, [1, 2], 1, live(1, 2))]),
        (2_000, 3, 2, [noop("n2", "n0", 3, 250, "leader left")]),
        (2_100, 3, 1, [command(APPLY, 3, 2, "h7:1;7")]),
        (2_150, 3, 1, [command(REGISTER, 3, 2, "h7:1", False, live(1, 2))]),
        (2_500, 3, 1, [command(ALTER, 3, 1, 1, [1], 2, live(1, 2))]),
        (3_000, 3, 1, [command(ELECT, 3, 2, None, False, True, "default", None, live(2))]),
        (3_200, 3, 1, [command(ALTER, 3, 2, 2, [2], 4, live(2))]),
        (3_300, 3, 1, [command(ELECT, 3, 2, None, False, False, "default", None, {})]),
    ])


def others() -> list[bytes]:
    """Group 2 of ``d``."""
    return chained([
        (7, 1, 2, [noop("n1", None, 1, 20, "no leader heard")]),
        (100, 1, 1, [b"", b"a" * 10, b"b" * 300]),
        (1_500, 1, 1, [b"c" * 70]),
        (4_000, 1, 1, [b"d" * 40, b"e" * 40]),
    ], group=2)


def write_d(root: Path) -> None:
    mine, second = controllers(), others()
    stale = frame(9, command(ALTER, 1, 1, 1, [1, 2], 2, live(1, 2)), term=1, wall_ms=T0 + 1_900, chain=mark_of(mine[4]))
    for name in NODES:
        log = Log()
        log.begin()
        log.block(hard_state(1, 1, "n0"), *mine[:5])
        log.block(second[0], second[1])
        if name != "n2":
            log.block(stale)
            log.block(hard_state(1, 3, "n2"))
        if name == "n1":
            log.block(hard_state(1, 3, "n0"))  # forgot that it had voted
        if name == "n0":
            log.block(truncate(1, 8, 1, mark_of(mine[4])), mine[5])
        if name != "n1":
            log.block(*mine[5 if name == "n2" else 6:])
        log.block(*second[2 : 3 if name == "n2" else 4])
        log.block()
        log.save(root / name, cluster="d", node=name)
    snapshot = root / "n2" / "snapshots" / f"1-{8:020d}-1.snap"
    snapshot.parent.mkdir()
    snapshot.write_bytes(b"x" * 100)
    os.utime(snapshot, ns=(T0 * 1_000_000, T0 * 1_000_000))


def write_d_traces(root: Path) -> None:
    """n0 led term 1 of group 1, and knew entry 8 committed; n2 asked in vain twice before it led; n1 led group 2 and
    was sampled one in ten."""
    marks = {1: mark_of(controllers()[4]), 2: mark_of(others()[1])}

    def line(event: str, at_us: int, node: str, group: int, term: int, **fields: Any) -> str:
        return json.dumps({"event": event, "at_ns": 9_000_000 + at_us * 1_000, "node": node, "group": group,
                           "term": term, **fields})

    def opened(every: int) -> str:
        return json.dumps({"event": "Opened", "version": 1, "at_ns": 9_000_000, "wall_ms": T0, "process": 3,
                           "sample_every": every, "sampled": ["Appended", "CommitAdvanced", "ReadGranted"]})

    def added(node: str, at_us: int, group: int, last: int) -> str:
        return line("Appended", at_us, node, group, 1, first=last, last=last, entry_term=1, kind=1, mark=marks[group])

    def ended(at_us: int, number: int, term: int, result: str, probe: bool) -> str:
        return line("RoundEnded", at_us, "n2", 1, term, round=number, probe=probe, result=result, accepted=1, valid=2)

    root.mkdir(parents=True)
    files = {
        "n0": [opened(1), added("n0", 400_000, 1, 8),
               line("CommitAdvanced", 407_000, "n0", 1, 1, index=8, counted=True),
               line("Truncated", 1_990_000, "n0", 1, 3, first=9, last=9)],
        "n1": [opened(10), added("n1", 402_500, 1, 8), added("n1", 100_000, 2, 4),
               line("CommitAdvanced", 100_750, "n1", 2, 1, index=4, counted=True)],
        "n2": [opened(1), added("n2", 401_000, 1, 8), ended(1_700_000, 1, 1, "WAIT_TO_VOTE_NEXT", True),
               ended(1_800_000, 2, 2, "WAIT_TO_VOTE_NEXT", False), ended(1_900_000, 3, 3, "WAIT_TO_REVOTE", False),
               ended(1_999_000, 4, 3, "PASSED", False)],
    }
    for name, lines in files.items():
        (root / f"{name}.ndjson").write_text("\n".join(lines) + "\n")


def write_f(root: Path) -> None:
    first = chained([
        (600, 4, 1, [b"p" * 5] * 2), (900, 4, 1, [b"q" * 7]),
        (1_200, 7, 2, [noop("n2", "n1", 2, 90, "no leader heard")]), (1_400, 7, 1, [b"r"])], index=41)
    second = chained([(650, 5, 1, [b"s" * 4]), (1_300, 5, 1, [b"t"])], group=2, index=31)
    third = chained([(700, 6, 2, [noop("n0", "n2", 1, 10, "leader left")]), (800, 6, 1, [b"u"])], group=3, index=21)
    for name in NODES:
        log = Log()
        if name == "n1":  # purged further
            log.begin(state(1, 42, 4, mark_of(first[0])), state(2, 31, 5, mark_of(second[0])), state(3, 20, 5, 0),
                      sequence=6)
            log.block(*first[1:], *second[1:], *third)
        else:
            log.begin(state(1, 40, 4, 0), state(2, 30, 5, 0), state(3, 20, 5, 0), sequence=5)
            log.block(*first, *second, *third)
        log.block()
        log.save(root / name, cluster="f", node=name)


def write_f_traces(root: Path) -> None:
    """n1 leads term 5 of group 2, and n0 follows."""
    def told(node: str, counted: bool) -> str:
        return "\n".join(json.dumps(line) for line in (
            {"event": "Opened", "version": 1, "at_ns": 4_000_000, "wall_ms": T0, "process": 5, "sample_every": 1,
             "sampled": ["Appended", "CommitAdvanced", "ReadGranted"]},
            {"event": "CommitAdvanced", "at_ns": 1_305_000_000, "node": node, "group": 2, "term": 5, "index": 32,
             "counted": counted})) + "\n"

    root.mkdir(parents=True)
    (root / "n0.ndjson").write_text(told("n0", counted=False))
    (root / "n1.ndjson").write_text(told("n1", counted=True))


def write(root: Path) -> None:
    """All four; traces lie beside the nodes of ``c``, ``d`` and ``f``."""
    records = story()
    save(root / "c", records)
    log, _ = lay_out(records[:-1])
    log.save(root / "c" / "n0", node="n0")
    write_traces(root / "c" / "traces", records)
    write_d(root / "d")
    write_d_traces(root / "d" / "traces")
    write_f(root / "f")
    write_f_traces(root / "f" / "traces")
    alone = Log()
    alone.begin()
    alone.block(*chained([(3_400, 1, 1, [b"y"])]))
    alone.block(install(1, 5, 1, 7))
    alone.block(*chained([(3_500, 2, 2, [noop("n0", None, 1, 5, "no leader heard")]), (3_600, 2, 1, [b"z" * 9] * 3)],
                         index=6))
    alone.block()
    alone.save(root / "e" / "n0", cluster="e", node="n0")
