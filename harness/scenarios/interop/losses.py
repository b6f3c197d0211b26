"""Compares acknowledged messages with logs, and explains the likely cause of a loss.

Pure functions of reports and bytes; it knows no process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs

from harness.processes.program import Report
from remoting import record as codec
from remoting.errors import DamagedRecord, MessageIllegal

SHOWN = 5
EARLY = ("a RocketMQ master acknowledged what not all in sync had: apache/rocketmq#9897, it counts connections, and a "
         "half-open one counts its slave twice")
CUT = ("a RocketMQ slave cut off what it had copied: apache/rocketmq#9689 and #9942, its epochs do not begin where its "
       "master's do")
OURS = "no defect of RocketMQ explains it: ours"


@attrs.frozen
class Acknowledged:
    """One acknowledgement: the place of the message, and the address of the broker that gave it."""

    number: int
    queue_id: int
    queue_offset: int
    master: str
    at_us: int

    @property
    def place(self) -> tuple[int, int]:
        return self.queue_id, self.queue_offset


def acknowledged(sent: Iterable[Report]) -> dict[int, Acknowledged]:
    """The acknowledgements in a sender's reports, by number."""
    return {each["sequence"]: Acknowledged(each["sequence"], each["queue"], each["offset"], master_of(each["id"]),
                                      each["ended_us"])
            for each in sent if each["ok"]}


def master_of(message_id: str) -> str:
    """The address of the broker that stored a message; empty when the id does not tell."""
    try:
        host, port = codec.unpacked_host(codec.parse_message_id(message_id)[0])
    except MessageIllegal:
        return ""
    return f"{host}:{port}"


def numbers_in(log: bytes, topic: str) -> dict[int, set[tuple[int, int]]]:
    """The numbers in a topic's bodies with queue and queue offset, from a whole log up to the end of its records.
    """
    found: dict[int, set[tuple[int, int]]] = {}
    at = 0
    while at < len(log):
        skipped = codec.blank_size(log, at)
        if skipped is not None:
            at += skipped
            continue
        try:
            record = codec.decode(log, at)
        except DamagedRecord:
            break
        if record.message.topic == topic.encode():
            number = int(record.message.body.split()[0])
            found.setdefault(number, set()).add((record.message.queue_id, record.queue_offset))
        at += record.size
    return found


def missing(promised: Iterable[Acknowledged], log: bytes, topic: str) -> list[Acknowledged]:
    """Acknowledged messages that this log does not have at their places."""
    held = numbers_in(log, topic)
    return [each for each in promised if each.place not in held.get(each.number, ())]


def cause(acknowledged_by_java: bool, missing_from_java: bool) -> str:
    """The likely cause of such a loss."""
    return EARLY if acknowledged_by_java else CUT if missing_from_java else OURS


def evidence(what: str, gone: Collection[Acknowledged], java: Collection[str], holder: str,
             epochs: Mapping[str, str]) -> str:
    """The loss in words: how many, whose, from whom, the likely cause, and everybody's epoch file."""
    lines = [f"{what}: {len(gone)} acknowledged messages are not on {holder}"]
    for master in sorted({each.master for each in gone}):
        these = [each for each in gone if each.master == master]
        kind = "RocketMQ's" if master in java else "ours"
        lines.append(f"{len(these)} acknowledged by {master} ({kind}), the first: {these[:SHOWN]}")
        lines.append(f"cause: {cause(master in java, holder in java)}")
    lines += [f"epochs of {address}: {text.split()}" for address, text in epochs.items()]
    return "\n".join(lines)
