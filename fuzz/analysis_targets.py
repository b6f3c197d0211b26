"""Fuzz targets of the bulk readers: segments and DLedger files of any content give rows, some of which tell of damage.

Whatever the bytes are, no error comes out, every row fits the schema, and no row points outside of its file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from analysis.dledger.layout import ENTRY_BYTES
from analysis.dledger.reading import DLedgerLog, read_dledger
from analysis.files.filesystem import Entry, ReadFile, Tree
from analysis.parsing.rows import Payload, Place, Wanted, batches
from analysis.parsing.tables import cuts_of, tabulate
from analysis.parsing.walk import Cursor, walk
from analysis.schemas import DAMAGE, Format, arrow_schema
from fuzz import sealing
from fuzz.held import HeldFile
from fuzz.target import Target
from raft import frame
from raft.storage import blocks

_OWNER: Final = 0x0102030405060708
_FORMS: Final[tuple[Format, ...]] = ("frames", "entries", "events")
_PAYLOADS: Final[tuple[Payload, ...]] = ("none", "prefix", "full")


def _check_rows(form: Format, found: Iterator[Any], size: int) -> None:
    for count, batch in enumerate(found):
        assert batch.schema == arrow_schema(form) and count < 1_000
        batch.validate(full=True)
        for row in batch.to_pylist():
            assert 0 <= row["offset"] <= size
            assert row["kind"] != "damaged" or row["damage"] in DAMAGE


def check_segment_rows(data: bytes) -> None:
    """The first byte: as it is or with true checksums, sealed or not, which rows; the second: where it is damaged."""
    mode, hit, raw = data[0] if data else 0, data[1] if len(data) > 1 else 0, data[2:]
    segment = bytearray(sealing.segment(raw, _OWNER, 1) if mode & 1 else raw)
    if mode & 2 and segment:
        segment[len(segment) * hit >> 8] ^= hit | 1
    form, payload, whole = _FORMS[(mode >> 2) % 3], _PAYLOADS[(mode >> 4) % 3], bytes(segment)
    found = walk(whole, _OWNER, 1, Cursor(), sealed=bool(mode & 0x80))
    frames, damages = tabulate(whole, found, cuts_of(found))
    _check_rows(form, batches(frames, found, damages, Place("c", "n0", "f", 1), Wanted(form, payload)), len(whole))


def _segment_seeds() -> list[bytes]:
    one = frame.build(kind=1, group=1, term=2, first=5, payloads=[b"abc", b"", b"de"], wall_ms=9, chain=3)
    noop = frame.build(kind=2, group=1, term=3, first=8, payloads=[b"x"], wall_ms=9, chain=one.mark)
    state, _ = blocks.encode_local(blocks.LocalKind(1), 1, b"\x83\x01\x61n\x02")
    body = b"".join(bytes([128, len(each.data) - frame.HEADER_BYTES]) + each.data for each in (one, noop))
    whole = len(body).to_bytes(2, "little") + body
    return [bytes([mode, hit]) + whole for mode in (1, 3, 5, 9, 0x81, 0x83, 0x95, 0x29) for hit in (9, 130)] + [
        b"\0\0" + sealing.segment(whole, _OWNER, 1), b"\x01\0" + bytes([1, 9]) + state]


# --- DLedger ---------------------------------------------------------------------------------------------------------


class _HeldTree(Tree):
    """A directory of these files."""

    held: dict[str, bytes]

    def entries(self, name: str = "") -> list[Entry]:
        return [Entry(path.rpartition("/")[2], False, len(data)) for path, data in sorted(self.held.items())
                if path.rpartition("/")[0] == name]

    def open(self, name: str, *, create: bool = False) -> ReadFile:
        if name not in self.held:
            raise FileNotFoundError(name)
        return cast(ReadFile, HeldFile(self.held[name]))


@contextmanager
def _tree(held: dict[str, bytes]) -> Iterator[Tree]:
    tree = _HeldTree("/x/dledger-n0", None, "/x/dledger-n0")
    object.__setattr__(tree, "held", held)
    yield cast(Tree, tree)


def check_dledger_rows(data: bytes) -> None:
    """The first byte: which rows, with an index or without, entries made good first or not."""
    mode, raw = data[0] if data else 0, data[1:]
    log = _entries(raw) if mode & 1 else raw
    half = len(log) // 2
    held = {f"data/{0:020d}": log}
    if mode & 2:
        held = {f"data/{0:020d}": log[:half], f"data/{half:020d}": log[half:]}
    if mode & 4:
        held[f"index/{0:020d}"] = raw[-96:]
    held["currterm"] = raw[:40]
    wanted = Wanted(_FORMS[(mode >> 3) % 3], _PAYLOADS[(mode >> 5) % 3])
    with _tree(held) as tree:
        for work in DLedgerLog.plan(tree, "g", wanted, 1 << 20):
            _check_rows(wanted.form, read_dledger(tree, work, wanted), len(log) + len(raw))


def _entries(data: bytes) -> bytes:
    """Entries of which one byte each says what is odd, and one how long its body is."""
    out, at, index = bytearray(), 0, 0
    while at + 2 <= len(data):
        odd, length = data[at], data[at + 1] % 32
        body = data[at + 2 : at + 2 + length]
        at += 2 + len(body)
        magic = (1, 2, 3, -1, 1, 1, 1, 1)[odd & 7]
        out += struct.pack(">iiqqqiiii", magic, ENTRY_BYTES + len(body) + (odd >> 6 == 3), index, odd >> 3 & 1,
                           len(out), 0, 0, 0, len(body)) + body
        index += 1 + (odd >> 4 == 5)
    return bytes(out)


def _dledger_seeds() -> list[bytes]:
    return [bytes([mode]) + bytes([4, 9]) * 30 for mode in range(0, 256, 5)]


ANALYSIS_TARGETS: Final[dict[str, Target]] = {
    "segment-rows": Target("analysis.parsing: walk, tabulate, batches", check_segment_rows, _segment_seeds, 700),
    "dledger-rows": Target("analysis.dledger: plan, read_dledger", check_dledger_rows, _dledger_seeds, 400),
}
