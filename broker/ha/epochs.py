"""The epochs of a commit log: which master wrote which bytes, and up to where two logs are the same.

A list is a value; what changes it gives a new one. An entry's end is the next one's start and is never stored, so that
no truncation can leave a stale one behind. Sources: ``EpochFileCache``, ``CheckpointFile`` and ``EpochEntry`` of
RocketMQ; equal starts are overwritten as in Kafka's leader epoch cache (apache/rocketmq#9942).
This module knows no file, only a file's text; and no connection.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import attrs

from remoting.bodies.controller import END_OFFSET_OPEN

EPOCHS_MAX: Final = 1000
"""Epochs for which a Java master's handshake has room; with more it cannot replicate. The oldest go first."""

_NUMBER: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_EPOCH_MAX: Final = 2**31 - 1


class EpochError(Exception):
    """An entry that does not fit behind the ones before it; says which and why."""


class EpochFileError(Exception):
    """Text that is no epoch file; says which line and what was expected."""


class Epoch(NamedTuple):
    """One master's reign begins: the first byte that it wrote is at ``start``."""

    epoch: int
    start: int


def _rising(instance: EpochList, attribute: object, entries: tuple[Epoch, ...]) -> None:
    for before, entry in zip((Epoch(-1, -1), *entries), entries, strict=False):
        if entry.epoch <= before.epoch or entry.start <= before.start:
            raise EpochError(f"epoch {entry.epoch} from {entry.start} follows epoch {before.epoch} from {before.start}:"
                             " both numbers must rise")


def _entries(entries: Iterable[tuple[int, int]]) -> tuple[Epoch, ...]:
    return tuple(Epoch(*entry) for entry in entries)


@attrs.frozen
class EpochList:
    """Epochs and starts, both strictly rising. Raises ``EpochError`` when they do not."""

    entries: tuple[Epoch, ...] = attrs.field(default=(), converter=_entries, validator=_rising)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def last(self) -> Epoch | None:
        return self.entries[-1] if self.entries else None

    def end(self, at: int) -> int:
        """First offset behind the entry at index ``at``; ``END_OFFSET_OPEN`` for the last."""
        assert 0 <= at < len(self.entries)
        return self.entries[at + 1].start if at + 1 < len(self.entries) else END_OFFSET_OPEN

    def append(self, epoch: int, start: int) -> EpochList:
        """Add a reign. The same epoch again changes nothing: its master restarted.

        An epoch that begins where the last one began replaces it, since that wrote nothing. The oldest goes when there
        are more than ``EPOCHS_MAX``.

        Raises ``EpochError`` when the epoch is older than the last, or begins before it.
        """
        last = self.last
        if last is None:
            return EpochList([(epoch, start)])
        if epoch < last.epoch or start < last.start:
            raise EpochError(f"epoch {epoch} from {start} cannot follow epoch {last.epoch} from {last.start}")
        if epoch == last.epoch:
            return self
        kept = self.entries[:-1] if start == last.start else self.entries
        return EpochList((*kept, (epoch, start))[-EPOCHS_MAX:])

    def cut_from_offset(self, offset: int) -> EpochList:
        """The list without epochs that begin at ``offset`` or behind it."""
        return EpochList(entry for entry in self.entries if entry.start < offset)

    def drop_before(self, offset: int) -> EpochList:
        """The list without epochs that end before ``offset``, the log's new beginning.

        One that ends right there stays: the next may be without a byte, and then no other tells up to where this log
        and another one are the same.
        """
        if not self.entries or self.end(0) >= offset:
            return self
        kept = EpochList(entry for at, entry in enumerate(self.entries) if self.end(at) >= offset)
        assert kept.last == self.last and kept.find(offset) == self.find(offset), "who wrote what is left stays known"
        return kept

    def within(self, log_end: int) -> EpochList:
        """The list without epochs that begin behind the log's end.

        A crash may come between cutting the log and writing this list, or between that and a new master's first byte.
        """
        kept = self.cut_from_offset(log_end + 1)
        assert kept.find(log_end) == kept.last == self.find(log_end), "the last entry left is the log's end's"
        return kept

    def find(self, offset: int) -> Epoch | None:
        """The epoch to which the byte at ``offset`` belongs; None before the first entry."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry.start)
        assert not at or self.entries[at - 1].start <= offset
        return self.entries[at - 1] if at else None

    def next(self, epoch: int) -> Epoch | None:
        """The first entry with a greater epoch."""
        at = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        assert at == len(self.entries) or self.entries[at].epoch > epoch
        return self.entries[at] if at < len(self.entries) else None

    def start_of(self, epoch: int) -> int | None:
        return next((entry.start for entry in self.entries if entry.epoch == epoch), None)


def consistent_point(local: EpochList, local_end: int, master: EpochList, master_end: int) -> int | None:
    """The greatest offset up to which both logs are known to hold the same bytes; None when nothing is known.

    An epoch has one master, which began it at one offset: where both lists hold the same entry, both logs are the same
    up to the nearer end of it. Entries behind a log's end say nothing. Logs that both began at 0, under masters of
    which one wrote nothing that the other log has, are the same up to 0; in Java such a replica is stuck.
    """
    mine, theirs = local.within(local_end), master.within(master_end)
    starts = {entry.epoch: at for at, entry in enumerate(theirs)}
    for at in range(len(mine) - 1, -1, -1):
        entry = mine.entries[at]
        other = starts.get(entry.epoch)
        if other is not None and theirs.entries[other] == entry:
            assert entry.start <= min(local_end, master_end), "the common epoch has begun in both logs"
            return min(mine.end(at), local_end, theirs.end(other), master_end)
    return 0 if mine and theirs and mine.entries[0].start == theirs.entries[0].start == 0 else None


# --- the file ------------------------------------------------------------------------------------------------


def to_text(epochs: EpochList) -> str:
    """Return the file's text, as ``CheckpointFile`` writes it. An empty list has a text, too.

    Else the list before would come back after a restart. For an empty list Java turns to the ``.bak`` file, so its
    writer removes that."""
    lines = "".join(f"{entry.epoch}-{entry.start}\n" for entry in epochs)
    return f"{len(epochs)}\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF}\n{lines}"


def _number(line: int, text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise EpochFileError(f"line {line} of the epoch file is {text[:40]!r}; a number from {least} to {most} "
                             "was expected")
    return int(text)


def from_text(text: str) -> EpochList:
    """Reads the file's text; a CRC of 0 is not checked, as in Java. Raises ``EpochFileError``."""
    lines = text.splitlines()
    if len(lines) < 2:
        raise EpochFileError(f"the epoch file has {len(lines)} lines; a count, a CRC and the entries were expected")
    count, crc = _number(1, lines[0], 0, 1 << 24), _number(2, lines[1], 0, _EPOCH_MAX)
    found = lines[2:]
    if len(found) != count:
        raise EpochFileError(f"the epoch file announces {count} entries and holds {len(found)}")
    separator = "\r\n" if "\r\n" in text else "\n"
    if crc and zlib.crc32("".join(line + separator for line in found).encode()) & 0x7FFFFFFF != crc:
        raise EpochFileError("the CRC of the epoch file's entries is not the one on its line 2")
    entries = []
    for number, line in enumerate(found, 3):
        epoch, dash, start = line.partition("-")
        if not dash:
            raise EpochFileError(f"line {number} of the epoch file is {line[:40]!r}; <epoch>-<start> was expected")
        entries.append((_number(number, epoch, 0, _EPOCH_MAX), _number(number, start, 0, END_OFFSET_OPEN)))
    try:
        return EpochList(entries)
    except EpochError as wrong:
        raise EpochFileError(f"the epoch file's entries do not rise: {wrong}") from wrong


@attrs.frozen
class Loaded:
    """The content of the two files. ``damaged`` says what was wrong with the first one that was skipped, "" if none
    was."""

    epochs: EpochList
    damaged: str = ""


def load(main: str | None, backup: str | None) -> Loaded:
    """Return the list in the main file, or in its ``.bak`` if that is missing or damaged. None: there is no such file.

    Cut it to the log with ``within`` before use, since a backup may tell of more than the log holds.

    Raises ``EpochFileError`` when there is a file and none can be read.
    """
    wrong: EpochFileError | None = None
    for text in (main, backup):
        if text is None:
            continue
        try:
            return Loaded(from_text(text), str(wrong or ""))
        except EpochFileError as error:
            wrong = wrong or error
    if wrong is not None:
        raise wrong
    return Loaded(EpochList())
