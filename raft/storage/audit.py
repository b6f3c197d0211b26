"""Look at a directory without touching it, live or crashed: every record, every check, what is wrong and where.

Takes no lock and writes nothing. A writer at work may seal, recycle or extend segments meanwhile: damage is believed
only if it is still there on a second look. Knows the formats; prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import attrs

from raft.errors import DamagedLog, MalformedMessage, WrongDirectory
from raft.frame import Frame, Kind, parse
from raft.messages import HardState
from raft.storage.blocks import (
    BLOCK_BYTES,
    UPKEEP,
    BlockHeader,
    LocalKind,
    check_block,
    decode_hard_state,
    decode_position,
    decode_state,
)
from raft.storage.catalog import Catalog
from raft.storage.identity import Identity, read_identity
from raft.storage.interface import Files
from raft.storage.recovery import (
    Cursor,
    Fact,
    FrameFact,
    Head,
    LocalFact,
    Recovery,
    applier,
    begin_segment,
    find_proof,
    read_block,
    read_file,
    read_footer,
    read_head,
    recover,
    scan,
    segment_of,
    segment_path,
    segment_sequences,
    start_of,
)
from raft.storage.snapshots import DIRECTORY, read_stored, verify

_LOOKS: Final = 3


@attrs.frozen
class Problem:
    """One damage: its place, and words for it."""

    path: str
    offset: int
    reason: str


@attrs.define
class SegmentReport:
    """The outcome of a full scan of one segment."""

    path: str
    sequence: int
    blocks: int = 0
    frames: int = 0
    entries: int = 0
    local_records: int = 0
    bytes_used: int = 0
    bytes_size: int = 0
    first_write: int = 0
    last_write: int = 0
    footer: str = "none"
    """"good", "none", or "open" for the newest segment."""
    ended: str = ""
    """Reason why the newest segment ends where it does, for people."""


@attrs.define
class Report:
    """The outcome for the whole directory. If ``problems`` is empty, everything that was checked is sound."""

    identity: Identity
    catalog: Catalog
    segments: list[SegmentReport] = attrs.Factory(list)
    snapshots: list[dict[str, Any]] = attrs.Factory(list)
    problems: list[Problem] = attrs.Factory(list)


def identity_of(files: Files) -> Identity:
    """Return whose directory this is. Raises ``WrongDirectory`` if it is no raft directory."""
    found = read_identity(files)
    if found is None:
        raise WrongDirectory("this is not a raft directory: it has no file 'identity'")
    return found


def audit(files: Files) -> Report:
    """Check every block, frame, chain, footer and snapshot. Raises ``WrongDirectory``; damage is in the report."""
    identity = identity_of(files)
    report = _look(files, identity)
    for _ in range(_LOOKS - 1):
        if not report.problems:
            break
        again = _look(files, identity)
        again.problems = [problem for problem in again.problems if problem in report.problems]
        report = again
    return report


def _look(files: Files, identity: Identity) -> Report:
    report = Report(identity, Catalog())
    try:
        sequences = segment_sequences(files)
    except DamagedLog as error:
        report.problems.append(_problem(error))
        sequences = []
    try:
        _audit_log(files, identity.owner, sequences, report)
    except FileNotFoundError as error:  # recycled while we read, or really gone: the next look tells
        report.problems.append(Problem(str(error.filename), 0, "the file is gone"))
    _audit_snapshots(files, report)
    _audit_reach(report)
    return report


def _problem(error: DamagedLog) -> Problem:
    return Problem(error.path, error.offset, error.reason)


def _audit_log(files: Files, owner: int, sequences: list[int], report: Report) -> None:
    previous: Cursor | None = None
    for sequence in sequences:
        path = segment_path(sequence)
        head = read_head(files, owner, sequence)
        if isinstance(head, str):
            newest = sequence == sequences[-1]
            due = previous.sequence + 1 if previous is not None else 1
            if not newest or find_proof(read_file(files, path), 0, owner, sequence, due) is not None:
                report.problems.append(Problem(path, 0, head))
            previous = None
            continue
        begins = head.header.sequence, head.header.chain
        if previous is not None and (previous.sequence + 1, previous.chain) != begins:
            report.problems.append(Problem(path, 0, "this segment does not continue the one before it"))
            previous = None
        previous = _audit_segment(files, owner, head, previous is None, sequence == sequences[-1], report)


def _audit_segment(
    files: Files, owner: int, head: Head, fresh: bool, newest: bool, report: Report
) -> Cursor | None:
    """Scan one segment; its end, or None if it is damaged. ``fresh``: what came before is not known to be sound."""
    if fresh:
        report.catalog = Catalog()
    catalog, seen = report.catalog, SegmentReport(head.path, head.sequence, bytes_size=head.size)
    report.segments.append(seen)
    try:
        begin_segment(catalog, head, oldest=fresh)
    except DamagedLog as error:
        report.problems.append(_problem(error))
        return None
    catalog.begin(segment_of(head))
    apply = applier(catalog)

    def count(path: str, offset: int, facts: list[Fact]) -> None:
        seen.blocks += 1
        for fact in facts:
            if len(fact) == 8:
                seen.frames += 1
                seen.entries += fact[2] - fact[1] + 1
            else:
                seen.local_records += 1
        apply(path, offset, facts)

    data, cursor = read_file(files, head.path), start_of(head)
    try:
        reason = scan(head.path, data, owner, head.sequence, cursor, count)
    except DamagedLog as error:
        report.problems.append(_problem(error))
        return None
    catalog.segments[-1].end = seen.bytes_used = cursor.offset
    seen.first_write, seen.last_write = head.header.sequence, cursor.sequence
    if newest:
        seen.footer, seen.ended = "open", reason
        if find_proof(data, cursor.offset, owner, head.sequence, cursor.sequence + 1) is not None:
            report.problems.append(Problem(head.path, cursor.offset, f"{reason}; a later block knows it to be synced"))
            return None
        return cursor
    return cursor if _audit_seal(files, owner, head, cursor, reason, report) else None


def _audit_seal(files: Files, owner: int, head: Head, end: Cursor, reason: str, report: Report) -> bool:
    """Return whether a sealed segment's blocks reach to the next segment, and its footer agrees with them."""
    after = read_head(files, owner, head.sequence + 1)
    if isinstance(after, Head) and (end.sequence + 1, end.chain) != (after.header.sequence, after.header.chain):
        report.problems.append(Problem(head.path, end.offset, reason))
        return False
    footer = read_footer(files, owner, head)
    if footer is None or footer.last_crc != end.chain:
        return True  # the next opening scans this segment instead
    report.segments[-1].footer = "good"
    spans = report.catalog.segments[-1].spans
    if footer.end != end.offset or footer.spans.keys() != spans.keys() or any(
            attrs.astuple(footer.spans[number])[:-1] != attrs.astuple(spans[number])[:-1] for number in spans):
        report.problems.append(Problem(head.path, end.offset, "the footer differs from the blocks"))
    return True


def _audit_snapshots(files: Files, report: Report) -> None:
    for name in files.list(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        if not name.endswith(".snap"):
            continue
        try:
            file = files.open(path)
        except FileNotFoundError:
            continue  # a newer snapshot replaced it
        try:
            stored = read_stored(file, path)
            for _ in verify(file, stored):
                pass
            report.snapshots.append({
                "path": path, "group": stored.group, "index": stored.meta.index, "term": stored.meta.term,
                "bytes": stored.meta.size, "wall_ms": stored.meta.wall_ms,
            })
        except DamagedLog as error:
            report.problems.append(_problem(error))
        finally:
            file.close()


def _audit_reach(report: Report) -> None:
    """A log that does not begin at 1 needs a snapshot that reaches it."""
    for number, group in report.catalog.groups.items():
        newest = max((each["index"] for each in report.snapshots if each["group"] == number), default=0)
        if group.purged.index > newest and not report.problems:
            report.problems.append(Problem(
                report.catalog.segments[0].path, 0,
                f"the log of group {number} begins behind entry {group.purged.index}, the newest snapshot is {newest}"))


def recover_live(files: Files, owner: int) -> Recovery | None:
    """``recover`` beside a writer. Raises ``DamagedLog``."""
    for _ in range(5 * _LOOKS):
        with suppress(DamagedLog, FileNotFoundError):  # the last look raises if it is really damaged
            return recover(files, owner)
    return recover(files, owner)


@attrs.frozen
class Record:
    """One record, where it lies."""

    path: str
    offset: int
    write: int
    """Number of the write that wrote its block."""
    group: int
    frame: Frame | None
    words: str
    """The content of a local record in words; "" for a frame."""
    upkeep: bool = False
    """True if the storage wrote it for itself: entries carried forward, or a group's removal. It changes no group."""


def records(files: Files) -> Iterator[Record]:
    """Every record of the log in the order of writing, also what was truncated later. Raises ``DamagedLog``."""
    owner = identity_of(files).owner
    sequences = segment_sequences(files)
    for sequence in sequences:
        try:
            head = read_head(files, owner, sequence)
        except FileNotFoundError:
            continue  # recycled while we read
        if isinstance(head, str):
            if sequence != sequences[-1]:
                raise DamagedLog(segment_path(sequence), 0, head)
            return
        yield from _records(files, head, owner, sequence == sequences[-1])


def _records(files: Files, head: Head, owner: int, newest: bool) -> Iterator[Record]:
    data, looks = read_file(files, head.path), 1
    at, due, chain = 0, head.header.sequence, head.header.chain
    while True:
        header = check_block(data, at)
        facts: list[Fact] | str = header if isinstance(header, str) else read_block(head.path, data, header, at)
        if not isinstance(header, BlockHeader) or isinstance(facts, str) or (
                header.owner, header.segment, header.sequence, header.chain) != (owner, head.sequence, due, chain):
            if newest and find_proof(data, at, owner, head.sequence, due) is not None:
                if looks < _LOOKS:  # a writer may have been faster than one read of the file
                    data, looks = read_file(files, head.path), looks + 1
                    continue
                raise DamagedLog(head.path, at, facts if isinstance(facts, str) else "a block that does not follow")
            return
        for fact in facts:
            yield _record(head.path, at, header, data, fact)
        at, due, chain = at + BLOCK_BYTES + header.length, due + 1, header.crc


def _record(path: str, block: int, header: BlockHeader, data: bytes, fact: FrameFact | LocalFact) -> Record:
    upkeep = bool(header.flags & UPKEEP)
    if len(fact) == 8:
        frame = parse(data, fact[7])
        return Record(path, fact[7], header.sequence, fact[0], frame, "", upkeep)
    kind, group, body = fact
    words = _upkeep_words(body, header.records) if upkeep else _words(kind, body)
    return Record(path, block, header.sequence, group, None, words, upkeep)


def _upkeep_words(body: bytes, count: int) -> str:
    try:
        position = decode_position(body)
    except MalformedMessage as error:
        return f"upkeep: {error}"
    if count > 1:
        return f"carried forward: what is left of the log, all behind entry {position.index}, follows once more"
    return "removed: the group's log is empty"


def _words(kind: LocalKind, body: bytes) -> str:
    try:
        if kind is LocalKind.HARD_STATE:
            return _hard_words(decode_hard_state(body))
        if kind is LocalKind.STATE:
            state = decode_state(body)
            last = f"last entry {state.last.index} of term {state.last.term}"
            return f"segment begins: {_hard_words(state.hard_state)}, {last}"
        position = decode_position(body)
    except MalformedMessage as error:
        return f"{kind.name}: {error}"
    if kind is LocalKind.TRUNCATE:
        return f"truncate: the log ends at {position.index} of term {position.term}"
    return f"install: the log is empty behind snapshot {position.index} of term {position.term}"


def _hard_words(state: HardState) -> str:
    return f"term {state.term}, voted for {state.voted_for if state.voted_for is not None else 'nobody'}"


def kind_name(kind: int) -> str:
    return Kind(kind).name
