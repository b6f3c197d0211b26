"""How fast remoting is: the codec alone on one core, then echo requests over one connection between two processes.

    python -m benchmarks.remoting [--seconds 5] [--bytes 128] [--codec]

One line of JSON for each figure: the codec's as median and spread of five rounds, in frames or bodies per second
of processor time, so that other load does not count. Knows remoting's codec; ``benchmarks.remoting_echo`` is the part
with sockets.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import attrs

from benchmarks import remoting_echo
from benchmarks.measure import Summary
from remoting import bodies
from remoting.command import Command, Encoding
from remoting.frame import FrameReader, encode
from remoting.headers.controller import BrokerHeartbeatRequest

ROUNDS = 5
CHUNK_FRAMES = 100
"""Frames that one read brings when a connection is busy."""
HEARTBEAT = BrokerHeartbeatRequest("DefaultCluster", "10.0.0.1:10911", "broker-a", 1, 3, 123_456, 123_456, 10_000, 5)
MEMBERS = b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",2:"10.0.0.2:10911"},"brokerName":"b"}}'


def measured(case: str, work: Callable[[], int], seconds: float) -> str:
    """``work`` does something so many times; a line tells how often in a second of this process's own time."""
    work()
    rates = []
    for _ in range(ROUNDS):
        done, begin = 0, time.process_time()
        stop = begin + seconds / ROUNDS
        while (now := time.process_time()) < stop:
            done += work()
        rates.append(done / (now - begin))
    return json.dumps({"case": case, "per_second": {k: round(v) for k, v in attrs.asdict(Summary.of(rates)).items()}})


def codec(size_bytes: int) -> dict[str, Callable[[], int]]:
    """Cases by name."""
    cases: dict[str, Callable[[], int]] = {}
    for encoding in Encoding:
        command = Command(remoting_echo.CODE, 1_000_000, 0, remoting_echo.EXT, bytes(size_bytes), encoding=encoding)
        chunk = encode(command) * CHUNK_FRAMES

        def writing(command: Command = command) -> int:
            for _ in range(CHUNK_FRAMES):
                encode(command)
            return CHUNK_FRAMES

        def reading(chunk: bytes = chunk) -> int:
            return sum(1 for _ in FrameReader().feed(chunk))

        def both(chunk: bytes = chunk) -> int:
            return sum(1 for command in FrameReader().feed(chunk) if encode(command))

        name = f"{encoding.name} frame with a header of {len(chunk) // CHUNK_FRAMES - 8 - size_bytes} bytes"
        cases |= {f"{name}: write": writing, f"{name}: read": reading, f"{name}: read and write": both}
    heartbeat = HEARTBEAT.to_ext()
    syncs = bodies.SyncStateSet(frozenset({1, 2, 3}), 7)
    json_of_syncs = syncs.to_json()

    def read_heartbeat() -> int:
        BrokerHeartbeatRequest.from_ext(heartbeat)
        return 1

    def read_syncs() -> int:
        bodies.SyncStateSet.from_json(json_of_syncs)
        return 1

    def write_syncs() -> int:
        syncs.to_json()
        return 1

    def read_members() -> int:
        bodies.GetBrokerMemberGroupResponseBody.from_json(MEMBERS)
        return 1

    return cases | {
        "904's header: read": read_heartbeat, "SyncStateSet: read": read_syncs, "SyncStateSet: write": write_syncs,
        "member group as fastjson writes it: read": read_members,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        "benchmarks.remoting", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="per figure (default: 5)")
    parser.add_argument("--bytes", type=int, default=128, help="of body (default: 128)")
    parser.add_argument("--codec", action="store_true", help="without the part that has sockets")
    args = parser.parse_args()
    for case, work in codec(args.bytes).items():
        print(measured(case, work, args.seconds), flush=True)
    if not args.codec:
        remoting_echo.run(args.bytes, args.seconds, lambda row: print(row.line(), flush=True))


if __name__ == "__main__":
    main()
