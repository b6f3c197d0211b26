"""Reads a range of segments in a task: reads a file, walks it, gives its rows, and looks again at damage.

A node at work extends, recycles and purges files meanwhile. A torn tail is no damage; damage counts only if a second
look at the file shows the same; a segment that was purged since the plan has no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import pyarrow as pa

from analysis.files.filesystem import Tree
from analysis.parsing.rows import Wanted, batches, damage_batch
from analysis.parsing.tables import Cuts, Frames, tabulate
from analysis.parsing.walk import Cursor, Damage, Walk, walk
from analysis.schemas import DAMAGE_KIND
from analysis.source.planning import Log, Look, Range, joined, look
from raft.storage.recovery import segment_path

_LOOKS: Final = 3


@attrs.define
class Reader:
    """Reads ranges of one log; ``tree`` counts the bytes."""

    tree: Tree
    wanted: Wanted

    def read(self, work: Range) -> Iterator[pa.RecordBatch]:
        """All rows of a range, segment by segment."""
        log = work.log
        if self.wanted.selection.wants_kind(DAMAGE_KIND):
            for lost in work.lost:
                place = log.place(self.tree.path_of(lost.file), lost.segment)
                yield damage_batch(self.wanted.form, place, [lost.damage])
        if not work.segments:
            return
        newest = log.segments[-1][0]
        for at, (sequence, _) in enumerate(work.segments):
            later = joined(work.later, *(work.bases[behind] for behind, _ in work.segments[at + 1 :]))
            yield from self._segment(log, sequence, later, sealed=sequence != newest)

    def _segment(self, log: Log, sequence: int, later: Cuts, *, sealed: bool) -> Iterator[pa.RecordBatch]:
        seen = self.look_at(log, sequence, later, sealed=sealed)
        if seen is not None:
            frames, found, damages = seen
            place = log.place(self.tree.path_of(segment_path(sequence)), sequence)
            if self.wanted.form == "events":
                self._set_life(log, sequence, found)
            yield from batches(frames, found, damages, place, self.wanted)

    def look_at(
        self, log: Log, sequence: int, later: Cuts, *, sealed: bool,
    ) -> tuple[Frames, Walk, list[Damage]] | None:
        """Frames, records and damage of one segment; None if it was purged."""
        believed: list[Damage] = []
        for attempt in range(_LOOKS):
            try:
                data = self.tree.read(segment_path(sequence))
            except FileNotFoundError:
                if self.purged(sequence):
                    return None
                return self._nothing(sequence, Damage(0, "missing", "this segment is missing"))
            except OSError as error:
                return self._nothing(sequence, Damage(0, "unreadable", str(error)))
            after = self.after(log, sequence) if sealed else None
            found = walk(data, log.owner, sequence, Cursor(), sealed=sealed, after=after)
            frames, damages = tabulate(data, found, later)
            if not damages or (attempt and damages == believed) or attempt == _LOOKS - 1:
                return frames, found, damages
            believed = damages
        raise AssertionError("the last look returns")

    def _nothing(self, sequence: int, damage: Damage) -> tuple[Frames, Walk, list[Damage]]:
        found = Walk(Cursor())
        return tabulate(b"", found, {})[0], found, [damage]

    def purged(self, sequence: int) -> bool:
        """Return whether a missing segment was the oldest, which may go at any time."""
        names = [name for name in self.tree.list("log") if name.endswith(".seg")]
        return bool(names) and min(names) > segment_path(sequence).rpartition("/")[2]

    def after(self, log: Log, sequence: int) -> tuple[int, int] | None:
        """Return how the next segment continues this one; if it cannot tell, the end by this one's footer."""
        sizes = dict(log.segments)
        if sequence + 1 in sizes:
            seen = look(self.tree, log, sequence + 1, sizes[sequence + 1], footer=False)
            if seen.good:
                return seen.first_write, seen.chain
        own: Look = look(self.tree, log, sequence, sizes.get(sequence, 0), footer=True)
        if own.footer is not None and own.footer.first_write == own.first_write:
            return own.footer.last_write + 1, own.footer.last_crc
        return None

    def _set_life(self, log: Log, sequence: int, found: Walk) -> None:
        """The first block of a segment is an opening only if the segment before ends in another life."""
        if not found.openings or found.openings[0].after_frames or found.openings[0].offset:
            return
        sizes: Mapping[int, int] = dict(log.segments)
        if sequence - 1 not in sizes:
            if sequence > 1:
                del found.openings[0]  # the segment before is gone: its end is unknown
            return
        before = look(self.tree, log, sequence - 1, sizes[sequence - 1], footer=False)
        life = before.life
        if life != found.openings[0].life:
            try:
                data = self.tree.read(segment_path(sequence - 1))
            except OSError:
                life = found.openings[0].life
            else:
                cursor = Cursor()
                walk(data, log.owner, sequence - 1, cursor, sealed=True, verify=False,
                     after=(self.after(log, sequence - 1)))
                life = cursor.life if cursor.life is not None else found.openings[0].life
        if life == found.openings[0].life:
            del found.openings[0]
