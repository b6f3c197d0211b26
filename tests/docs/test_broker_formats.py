"""The page of bytes: each of its tables laid over bytes that the code writes, field by field, to the last byte."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from broker.ha.epochs import Epoch, EpochList
from broker.ha.wire import Ack, Block, MasterHandshake, SlaveHandshake, Transfer
from broker.store.checkpoint import Checkpoint
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.timer import units as timers
from broker.timer.checkpoint import OwnFacts, TimerCheckpoint
from broker.timer.units import Unit
from broker.transactions import records
from remoting import frame
from remoting import record as codec
from remoting.command import Command, Encoding
from remoting.hashing import java_hash
from remoting.record import Message

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "broker-formats.md").read_text()
TABLE = re.compile(r"^<!-- bytes: ([^>]+) -->\n\|.*\n\|-.*\n((?:\|.*\n)+)", re.MULTILINE)
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
MESSAGE = Message(b"topic", b"bodybody", 3, b"TAGS\x01t\x02KEYS\x01k\x02", 5, 0, 6, HOST, HOST, 7, 8)
COMMAND = Command(310, 9, 0, {"a": "b"}, b"body", "words", language=3, version=513, encoding=Encoding.ROCKETMQ)
HEADER = (b"\x01\x36\x03\x02\x01\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x05words\x00\x00\x00\x08"
          b"\x00\x01a\x00\x00\x00\x01b")


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


@attrs.frozen
class Case:
    """``data`` is to hold ``values`` in the rows' order, bytes or numbers; ``lengths`` are the page's letters."""

    data: bytes
    values: Sequence[int | bytes]
    lengths: dict[str, int] = attrs.field(factory=dict)
    rest: int = 0
    """Bytes behind the last row."""


def in_store() -> MemoryFiles:
    """A message with a key and no tag, and 2 s later the same one with a tag."""
    files = MemoryFiles()
    store = MessageStore(files, StoreConfig(
        log_file_bytes=4_096, queue_file_bytes=200, index_slots=8, index_entries=16))
    store.open()
    store.writer.put(attrs.evolve(MESSAGE, properties=b"KEYS\x01k\x02".ljust(len(MESSAGE.properties), b"\x02")), 1_000)
    store.writer.put(MESSAGE, 3_000)
    store.visible.advance()
    store.close()
    return files


def cases() -> dict[str, Case]:
    size = 91 + 8 + 5 + len(MESSAGE.properties)
    files = in_store()
    (index,) = [bytes(file.data) for path, file in files.content.items() if path.startswith("index/")]
    (queue,) = [bytes(file.data) for path, file in files.content.items() if path.startswith("consumequeue/")]
    entries = index[40 + 4 * 8 :]
    framed = frame.encode(COMMAND)
    timer_page = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7, OwnFacts(1_000, 8, 9, 52)).encode()
    return {
        "record": Case(codec.encode(MESSAGE, 11, 12, 13), [
            size, 0xDAA320A7, zlib.crc32(b"bodybody") & 0x7FFFFFFF, 3, 5, 11, 12, 0, 6, HOST, 13, HOST, 7, 8, 8,
            b"bodybody", 5, b"topic", len(MESSAGE.properties), MESSAGE.properties,
        ], {"b": 8, "t": 5, "p": len(MESSAGE.properties)}),
        "blank": Case(codec.blank(99), [99, 0xCBD43194]),
        "queue": Case(queue[20:40], [size, size, java_hash("t") % (1 << 64)]),
        "index header": Case(index[:40], [1_000, 3_000, 0, size, 1, 4]),
        "index entry": Case(entries[40:60], [number(entries[40:44]), size, 2, 1]),
        "checkpoint": Case(Checkpoint(1, 2, 3, 4, 5, 6).encode(), [1, 2, 3, 4, 5, 6], rest=4_096 - 48),
        "timer unit": Case(timers.pack(104, Unit(4_096, 200, 7, 3), 5_000, 1_000), [
            52, 104, 3, 1_000, 4_000, 4_096, 200, 7, 0]),
        "timer blank": Case(timers.blank(16), [16, 0, 0xCBD43194]),
        "timer slot": Case(timers.SLOT.pack(5, 52, 104, 2, 0), [5, 52, 104, 2, 0]),
        "timer checkpoint": Case(timer_page, [
            1, 2, 3, 4, 5, 6, 7, 0x51544331, 1_000, 8, 9, 52, zlib.crc32(timer_page[:88])], rest=4_096 - 92),
        **of_transactions(),
        "batch": Case(codec.encode_batch([(5, b"body", b"pr")]), [28, 0, 0, 5, 4, b"body", 2, b"pr"], {"b": 4, "p": 2}),
        "frame": Case(framed, [len(framed) - 4, 1, len(HEADER), HEADER, b"body"], {"n": len(HEADER), "b": 4}),
        "header": Case(HEADER, [310, 3, 513, 9, 0, 5, b"words", 8], {"n": 5}, rest=8),
        "slave handshake": Case(SlaveHandshake(7, True, False).to_bytes(), [1, 1, 0, 7]),
        "master handshake": Case(MasterHandshake(900, EpochList([(4, 800)])).to_bytes(), [1, 12, 900, 4, 4, 800]),
        "transfer": Case(Transfer(850, Epoch(4, 800), 840, b"bytes").to_bytes(), [2, 5, 850, 4, 800, 840, b"bytes"],
                         {"n": 5}),
        "acknowledgement": Case(Ack(855).to_bytes(), [2, 855]),
        "block": Case(Block(850, b"bytes").to_bytes(), [850, 5, b"bytes"], {"n": 5}),
    }


def of_transactions() -> dict[str, Case]:
    """A half that a commit made final, with its mark."""
    values = {"UNIQ_KEY": "U", "TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "topic", "REAL_QID": "3"}
    records.as_half(values)
    half = attrs.evolve(MESSAGE, topic=records.HALF_TOPIC, queue_id=0, properties=codec.encode_properties(values),
                        sys_flag=1, prepared_offset=0)
    raw = codec.encode(half, 12, 900, 13)
    found = records.read_half(codec.decode(raw))
    assert isinstance(found, records.Half)
    final = records.final(codec.decode(raw), found, HOST, 4)
    mark = records.mark([12, 15], records.COMMITTED, "M", 6, HOST, 4)
    kept = {"UNIQ_KEY": "U", "PGROUP": "g", "__transactionId__": "U", "__QUORATE_EPOCH": "4"}
    of_mark = {"TAGS": "d", "WAIT": "true", "UNIQ_KEY": "M", "__QUORATE_END": "commit", "__QUORATE_EPOCH": "4"}
    assert codec.decode_properties(final.properties) == kept and codec.decode_properties(mark.properties) == of_mark
    raw_final, raw_mark = codec.encode(final, 7, 1_200, 14), codec.encode(mark, 5, 1_400, 14)
    return {
        "half": Case(raw, [
            raw[:12], 0, 5, 12, 900, 1, raw[40:76], 0, 8, b"bodybody", 24, b"RMQ_SYS_TRANS_HALF_TOPIC",
            len(half.properties), half.properties], {"b": 8, "p": len(half.properties)}),
        "final": Case(raw_final, [
            raw_final[:12], 3, 5, 7, 1_200, 9, raw_final[40:76], 900, 8, b"bodybody", 5, b"topic",
            len(final.properties), final.properties], {"b": 8, "t": 5, "p": len(final.properties)}),
        "mark": Case(raw_mark, [
            raw_mark[:12], 0, raw_mark[16:36], 0, raw_mark[40:84], 6, b"12,15,", 27, b"RMQ_SYS_TRANS_OP_HALF_TOPIC",
            len(mark.properties), mark.properties], {"b": 6, "p": len(mark.properties)}),
    }


CASES = cases()


def rows(text: str) -> list[tuple[str, str, str]]:
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in text.splitlines()]  # type: ignore[misc]


def evaluated(text: str, lengths: dict[str, int]) -> int:
    """``91 + b + t``."""
    return sum(lengths[part] if part in lengths else int(part) for part in text.split(" + "))


@pytest.mark.parametrize(("name", "table"), [pytest.param(*found, id=found[0]) for found in TABLE.findall(PAGE)])
def test_a_table_says_what_the_bytes_are(name: str, table: str) -> None:
    case, end = CASES[name], 0
    fields = rows(table)
    assert len(fields) == len(case.values)
    for (at_text, size_text, field), value in zip(fields, case.values, strict=True):
        at, size = evaluated(at_text, case.lengths), evaluated(size_text, case.lengths)
        assert at == end, field
        end = at + size
        found: Any = case.data[at:end]
        assert (found if isinstance(value, bytes) else number(found)) == value, field
    assert end + case.rest == len(case.data)


def test_every_table_is_tried() -> None:
    assert {name for name, _ in TABLE.findall(PAGE)} == set(CASES)
    assert PAGE.count("| at | bytes |") == len(CASES)
