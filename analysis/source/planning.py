"""From directories to ranges of segments: what is in a log, by its heads and footers alone, and what can be left out.

A plan is values that pickle, so that tasks on other machines can read it. Planning reads 64 bytes of each segment's
head, its footer, and, for bounds on time, the header of each group's first frame in it; of a log of several segments
also the open one, which alone knows what it has cut off the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, cast

import attrs
from google_crc32c import value as crc32c

from analysis.files.filesystem import Tree
from analysis.files.finding import Found
from analysis.parsing.rows import Place, Wanted
from analysis.parsing.selection import BEYOND, Selection
from analysis.parsing.tables import Cut, Cuts, cuts_of
from analysis.parsing.walk import Cursor, Damage, walk
from raft.errors import DamagedLog, MalformedMessage, UsageError, WrongDirectory
from raft.frame import HEADER_BYTES, peek_size
from raft.groups import read_origin
from raft.storage.blocks import (
    BLOCK_BYTES,
    LOCAL_MAGIC,
    TRAILER_BYTES,
    BlockHeader,
    LocalKind,
    check_block,
    check_trailer,
)
from raft.storage.catalog import Base, Footer, Span, decode_footer
from raft.storage.identity import read_identity
from raft.storage.interface import Files
from raft.storage.recovery import read_head, segment_path

_SEGMENT: Final = re.compile(r"(\d{20})[.]seg")
_SNAPSHOT: Final = re.compile(r"(\d+)-(\d{20})-\d+[.]snap")
_CUTTING: Final = frozenset({bytes([LocalKind.TRUNCATE]), bytes([LocalKind.INSTALL])})
_ORIGIN: Final = re.compile("group-([0-9a-f]{16})")


@attrs.frozen
class Lost:
    """Damage that shows in names and heads, with the file it is about (relative)."""

    file: str
    segment: int | None
    damage: Damage


@attrs.frozen
class Log:
    """A raft node's log, as its directory tells. ``segments``: (sequence, bytes), rising."""

    root: str
    cluster: str | None
    node: str | None
    owner: int
    names: Mapping[int, str]
    segments: tuple[tuple[int, int], ...]
    lost: tuple[Lost, ...]

    def place(self, file: str, segment: int | None, shift: int = 0) -> Place:
        return Place(self.cluster, self.node, file, segment, self.names, shift)


@attrs.frozen
class Range:
    """Segments of one log that a task reads in order.

    ``bases``: what each of them cut off before itself; ``later``: the same of all segments behind this range.
    """

    log: Log
    segments: tuple[tuple[int, int], ...]
    bases: Mapping[int, Cuts] = attrs.field(factory=dict)
    later: Cuts = attrs.field(factory=dict)
    lost: tuple[Lost, ...] = ()


class _Once:
    """``Files`` of a tree, whose listings are taken once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._names: dict[str, list[str]] = {}
        self.open = tree.open

    def list(self, name: str) -> list[str]:
        if name not in self._names:
            self._names[name] = self._tree.list(name)
        return self._names[name]


def open_log(found: Found) -> Log:
    """Look at a raft directory. What is wrong with it becomes damage."""
    tree, files = found.tree, cast(Files, _Once(found.tree))
    try:
        identity = read_identity(files)
        if identity is None:
            raise WrongDirectory("the file 'identity' is gone")
    except WrongDirectory as error:
        words = str(error)
        code = "version" if "has format" in words else "crc" if "damaged" in words else "foreign"
        return Log(tree.root, None, None, 0, {}, (), (Lost("identity", None, Damage(0, code, words)),))
    segments, lost = [], []
    for entry in tree.entries("log") or ():
        named = _SEGMENT.fullmatch(entry.name)
        if named is not None:
            segments.append((int(named[1]), entry.size))
        elif entry.name.endswith(".seg"):
            lost.append(Lost(f"log/{entry.name}", None, Damage(0, "foreign", "no segment is named like this")))
    for (before, _), (sequence, _) in pairwise(segments):
        lost += [Lost(segment_path(each), each, Damage(0, "missing", "this segment is missing"))
                 for each in range(before + 1, sequence)]
    log = Log(tree.root, identity.cluster, identity.node_id, identity.owner, _names(files), tuple(segments), ())
    return attrs.evolve(log, lost=(*lost, *_unreached(tree, files, log)))


def _names(files: Files) -> dict[int, str]:
    found = {}
    for name in files.list(""):
        match = _ORIGIN.fullmatch(name)
        if match is not None:
            try:
                origin = read_origin(files, int(match[1], 16))
            except (DamagedLog, UsageError, OSError):
                continue  # rows of that group have its number
            if origin is not None:
                found[int(match[1], 16)] = origin.name
    return found


def _unreached(tree: Tree, files: Files, log: Log) -> Iterator[Lost]:
    """Find logs that lack a snapshot, and snapshots that lack a log.

    A log that does not begin at entry 1 needs a snapshot that reaches it, where snapshots are kept with it. A snapshot
    needs a log, for it holds neither term nor vote.
    """
    if not log.segments:
        if any(map(_SNAPSHOT.fullmatch, files.list("snapshots"))):
            yield Lost(segment_path(1), 1, Damage(
                0, "missing", "there are snapshots but no log; term and vote are lost"))
        return
    if log.segments[0][0] == 1 or tree.entries("snapshots") is None:
        return
    newest: dict[int, int] = {}
    for name in files.list("snapshots"):
        match = _SNAPSHOT.fullmatch(name)
        if match is not None:
            newest[int(match[1])] = max(int(match[2]), newest.get(int(match[1]), 0))
    sequence = log.segments[0][0]
    try:
        head = read_head(files, log.owner, sequence)
    except OSError:
        return
    beyond = {number: state for number, state in ({} if isinstance(head, str) else head.states).items()
              if state.last.index > newest.get(number, 0)}
    for number, cut in (_later_cuts(tree, log) if beyond else {}).items():
        if number in beyond and cut.index <= newest.get(number, 0):
            del beyond[number]  # a later cut carried the group forward or removed it: no snapshot is missing
    for number, state in beyond.items():
        if state.last.index > newest.get(number, 0):
            path = segment_path(sequence - 1)
            yield Lost(path, sequence - 1, Damage(
                0, "missing", f"the log of group {log.names.get(number, number)} begins behind entry "
                f"{state.last.index}, and no snapshot reaches that far"))
            return  # one finding stands for that segment and all before it


def _later_cuts(tree: Tree, log: Log) -> Cuts:
    """Return the cuts of all segments but the oldest."""
    return joined(*(base_cuts(tree, log, seen) for seen in looks_of(tree, log)))


@attrs.define(eq=False)
class Look:
    """Head and footer of a segment. ``footer`` is None unless it is of this very log up to the next head."""

    sequence: int
    size: int
    first_write: int = 0
    chain: int = 0
    life: int = 0
    good: bool = False
    footer: Footer | None = None


def look(tree: Tree, log: Log, sequence: int, size: int, *, footer: bool) -> Look:
    """Read 64 bytes of head and, if asked, the footer, without checking that it is not of an earlier life."""
    seen = Look(sequence, size)
    try:
        file = tree.open(segment_path(sequence))
    except OSError:
        return seen
    try:
        header = check_block(file.pread(BLOCK_BYTES, 0), 0)
        if isinstance(header, BlockHeader) and (header.owner, header.segment) == (log.owner, sequence):
            seen.first_write, seen.chain, seen.life, seen.good = header.sequence, header.chain, header.life, True
        if footer and size >= TRAILER_BYTES:
            trailer = check_trailer(file.pread(TRAILER_BYTES, size - TRAILER_BYTES), log.owner, sequence)
            if trailer is not None and trailer[0] + trailer[1] <= size:
                data = file.pread(trailer[1], trailer[0])
                if crc32c(data) == trailer[2]:
                    seen.footer = decode_footer(data)
    except (OSError, MalformedMessage):
        pass
    finally:
        file.close()
    return seen


def looks_of(tree: Tree, log: Log) -> list[Look]:
    """Look at all segments, and keep the footers that count."""
    newest = log.segments[-1][0]
    looks = [look(tree, log, sequence, size, footer=sequence != newest) for sequence, size in log.segments]
    for seen, after in pairwise(looks):
        footer = seen.footer
        if footer is not None and (footer.first_write, footer.last_write + 1, footer.last_crc) != (
                seen.first_write, after.first_write, after.chain):
            seen.footer = None  # an earlier life sealed the segment, and a later one went on in it
    return looks


def base_cuts(tree: Tree, log: Log, seen: Look) -> Cuts:
    """Return the cuts of a segment in the log before it: from its footer, or else from its records."""
    if seen.footer is not None:
        return {number: Cut(span.base[1].index, span.base[0] is Base.RESET)
                for number, span in seen.footer.spans.items() if span.base is not None}
    try:
        data = tree.read(segment_path(seen.sequence))
    except OSError:
        return {}
    if not _may_cut(data):
        return {}
    return cuts_of(walk(data, log.owner, seen.sequence, Cursor(), sealed=False, verify=False))


def _may_cut(data: bytes) -> bool:
    """Return whether any bytes look like a record that cuts: a search that misses none, much faster than a walk."""
    at = data.find(LOCAL_MAGIC)
    while at >= 0:
        if data[at + 4 : at + 5] in _CUTTING:
            return True
        at = data.find(LOCAL_MAGIC, at + 1)
    return False


def plan(
    log: Log, tree: Tree, wanted: Wanted, *, clock_slack_ms: int, prune: bool, partition_bytes: int,
) -> list[Range]:
    """The ranges of one log that hold what is wanted."""
    if not wanted.selection.wants_node(log.node):
        return []
    if not log.segments:
        return [Range(log, (), lost=log.lost)] if log.lost else []
    if len(log.segments) == 1:
        return [Range(log, log.segments, lost=log.lost)]
    looks = looks_of(tree, log)
    kept = [seen for seen, wants in zip(looks, _wants(tree, log, looks, wanted, clock_slack_ms, prune), strict=True)
            if wants]
    bases = {seen.sequence: base_cuts(tree, log, seen) for seen in looks[1:]} if kept else {}
    ranges: list[Range] = []
    later: Cuts = {}
    behind = log.segments[-1][0]
    for group in reversed(list(_runs(kept, partition_bytes))):
        while behind > group[-1].sequence:
            join_cuts(later, bases.get(behind, {}))
            behind -= 1
        ranges.insert(0, Range(
            log, tuple((seen.sequence, seen.size) for seen in group),
            {seen.sequence: bases[seen.sequence] for seen in group[1:]}, joined(later)))
    if log.lost:
        if ranges:
            ranges[0] = attrs.evolve(ranges[0], lost=log.lost)
        else:
            ranges = [Range(log, (), lost=log.lost)]
    return ranges


def join_cuts(into: Cuts, more: Mapping[int, Cut]) -> None:
    for number, cut in more.items():
        if number in into:
            into[number].join(cut)
        else:
            into[number] = Cut(cut.index, cut.whole)


def joined(*cuts: Mapping[int, Cut]) -> Cuts:
    """All of them as one, of its own."""
    out: Cuts = {}
    for each in cuts:
        join_cuts(out, each)
    return out


def _runs(kept: Sequence[Look], partition_bytes: int) -> Iterator[list[Look]]:
    """Neighbouring segments, together up to ``partition_bytes``."""
    run: list[Look] = []
    size = 0
    for seen in kept:
        if run and (seen.sequence != run[-1].sequence + 1 or size + seen.size > partition_bytes):
            yield run
            run, size = [], 0
        run.append(seen)
        size += seen.size
    if run:
        yield run


def _wants(
    tree: Tree, log: Log, looks: Sequence[Look], wanted: Wanted, clock_slack_ms: int, prune: bool,
) -> list[bool]:
    """Which segments may hold what is wanted. A node's own records are in no footer, so events go by time alone."""
    selection = wanted.selection
    if wanted.form == "events":
        selection = Selection(wall_ms=selection.wall_ms)
    by_group = selection.groups is not None or selection.group_ids is not None
    if not prune or not (by_group or selection.by_frame):
        return [True] * len(looks)
    times = _Times(tree, looks, clock_slack_ms)
    out = []
    for at, seen in enumerate(looks):
        footer = seen.footer
        out.append(footer is None or any(
            span.first and selection.wants_group(log.names.get(number) or str(number), number)
            and selection.index.meets(span.first, span.end.index)
            and selection.term.meets(span.runs[0][1], span.runs[-1][1])
            and (selection.wall_ms.open or selection.wall_ms.meets(*times.of(at, number)))
            for number, span in footer.spans.items()))
    return out


class _Times:
    """Times between which the frames of a group in a segment were built.

    They go from its first frame there to its first frame in a later segment, with a margin.
    """

    def __init__(self, tree: Tree, looks: Sequence[Look], slack_ms: int) -> None:
        self._tree, self._looks, self._slack = tree, looks, slack_ms
        self._firsts: dict[tuple[int, int], int | None] = {}

    def of(self, at: int, group: int) -> tuple[int, int]:
        begin = self._first(at, group)
        end = None
        for later in range(at + 1, len(self._looks)):
            end = self._first(later, group)
            if end is not None:
                break
        return (-BEYOND if begin is None else begin - self._slack), (BEYOND if end is None else end + self._slack)

    def _first(self, at: int, group: int) -> int | None:
        key = at, group
        if key not in self._firsts:
            self._firsts[key] = self._read(at, group)
        return self._firsts[key]

    def _read(self, at: int, group: int) -> int | None:
        footer = self._looks[at].footer
        span: Span | None = None if footer is None else footer.spans.get(group)
        if span is None or not span.first:
            return None
        try:
            file = self._tree.open(segment_path(self._looks[at].sequence))
        except OSError:
            return None
        try:
            header = file.pread(HEADER_BYTES, span.offsets[0])
            peek_size(header)
        except (OSError, MalformedMessage):
            return None
        finally:
            file.close()
        return int.from_bytes(header[40:48], "little")
