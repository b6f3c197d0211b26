"""Decides up to where a log is trusted that outlived its machine, and whether it may lack what this replica
acknowledged.

While a machine runs, its system has all that any process wrote. Once it went down under a broker, what was written and
not synced may be gone, in any part. So each start notes in which boot of the machine it runs. A log that was closed in
order, or whose last process ran in the same boot, is trusted; so is one under SYNC_FLUSH, of which nothing was
acknowledged before it was synced. Any other one is in doubt: trusted as far as the checkpoint says that it was flushed,
which trails what was. The doubt outlives restarts, until the log was made level with a master's, or is the master's;
what was copied meanwhile is trusted as any log is, for whoever copied it may count in the SyncStateSet by then.
It knows a small file and the ends of a log, and no roles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from broker.store.checkpoint import PATH as CHECKPOINT
from broker.store.files import Files, read_whole, write_whole
from broker.store.log import Log
from remoting.errors import DamagedRecord

PATH: Final = f"{CHECKPOINT}.boot"
ALL: Final = -1
WHOLE: Final = (1 << 63) - 1
"""The log is in doubt, and nothing that is here was unsynced: another boot looks at what was synced until then."""


@attrs.frozen
class Trust:
    """The content of the file, as values."""

    boot: str = ""
    """Boot of the machine in which what is not flushed was written; "" if nobody knows."""
    synced: bool = False
    """Nothing was acknowledged before it was synced."""
    upto: int = ALL
    """The log is in doubt: what stands after this offset was not compared since. ``ALL``: no doubt."""

    def to_text(self) -> str:
        assert "\n" not in self.boot and self.upto >= ALL, "what is written is read back"
        return f"{self.boot}\n{'SYNC' if self.synced else 'ASYNC'}_FLUSH\n{self.upto}\n"

    @classmethod
    def from_text(cls, text: str) -> Trust | None:
        """Decode the file; None: this class never wrote such a text."""
        lines = text.split("\n")
        if len(lines) != 4 or lines[1] not in ("SYNC_FLUSH", "ASYNC_FLUSH") or not lines[2].lstrip("-").isdecimal():
            return None
        return cls(lines[0], lines[1] == "SYNC_FLUSH", max(ALL, int(lines[2])))


def doubted_from(found: Trust | None, boot: str, *, killed: bool, flushed: int) -> int:
    """Return up to where a log is trusted at a start, ``ALL`` if it is not in doubt. ``killed``: it was not closed in
    order; ``flushed``: so far it was on disk, for certain. None: nobody noted anything, as an earlier release."""
    if found is not None and found.upto != ALL:
        return min(found.upto, flushed) if killed and not (boot and found.boot == boot) else found.upto
    if not killed or (found is not None and (found.synced or (boot and found.boot == boot))):
        return ALL
    return flushed


class TrustFile:
    """The file of trust. ``boot``: the machine's present one; ``synced``: nothing is acknowledged unsynced from now on.
    """

    def __init__(self, files: Files, boot: str, *, synced: bool) -> None:
        self.boot = boot
        self._files, self._synced = files, synced
        self._on_disk: Trust | None = None

    def read(self) -> Trust | None:
        data = read_whole(self._files, PATH)
        self._on_disk = None if data is None else Trust.from_text(data.decode(errors="replace"))
        return self._on_disk

    def write(self, upto: int) -> None:
        """Write up to where the log is trusted (``ALL``: no doubt), unless the file says so. Raises ``OSError``."""
        self._write(Trust(self.boot, self._synced, upto))

    def distrust(self) -> None:
        """The disk failed: what the system was given may be gone though the machine runs on. Raises ``OSError``."""
        if self._on_disk is not None:
            self._write(attrs.evolve(self._on_disk, boot=""))

    def _write(self, trust: Trust) -> None:
        if trust != self._on_disk:
            self._on_disk = None
            write_whole(self._files, PATH, trust.to_text().encode())
            self._on_disk = trust


class LogTrust:
    """Keeps whether the end of one store's log can be trusted. ``open`` it together with the log."""

    def __init__(self, file: TrustFile | None, tell: Callable[[str], None]) -> None:
        """``file``: None where nobody asks whether the machine went down."""
        self._file, self._tell = file, tell
        self.in_doubt = False
        """It may lack what this replica acknowledged before its machine went down, until it is ``regained``."""
        self.trusted_end: int | None = None
        """End of what was synced when the machine went down. Bytes after it have not been compared with a master's
        since; None: there are none."""

    def open(self, log: Log, *, killed: bool, flushed: int) -> None:
        """Decide whether the log is in doubt, and note that for the next start: all that is here is on disk by now."""
        if self._file is None:
            return
        found, end = self._file.read(), log.max_offset
        upto = doubted_from(found, self._file.boot, killed=killed and (found is not None or end > 0), flushed=flushed)
        if upto != ALL:
            try:
                upto = log.boundary(upto)
            except DamagedRecord as damage:
                upto = damage.offset
            assert upto <= max(end, log.min_offset)
            self.in_doubt, self.trusted_end = True, upto if upto < end else None
            upto = WHOLE if self.trusted_end is None else upto  # what comes behind is of this boot
        self._note(upto)

    def doubt(self) -> None:
        """Doubt a log that is an older copy of itself: what is here was acknowledged, and more was. Raises ``OSError``.
        """
        if self._file is not None and not self.in_doubt:
            self._file.write(WHOLE)
            self.in_doubt = True

    def regained(self) -> None:
        """End the doubt: the log is level with a master's, or the master's own."""
        if self.in_doubt:
            self._note(ALL)
        self.in_doubt, self.trusted_end = False, None

    def truncate(self, offset: int) -> None:
        """Follow a cut of the log: what comes after it is new, so a start in the same boot need not cut it again."""
        assert self.in_doubt or self.trusted_end is None, "only a doubtful log is trusted in part"
        if self.trusted_end is not None and offset <= self.trusted_end:
            self.trusted_end = None
            self._note(WHOLE)

    def distrust(self) -> None:
        """The disk failed: the next start is in doubt, whatever the machine does. Raises ``OSError``."""
        if self._file is not None:
            self._file.distrust()

    def _note(self, upto: int) -> None:
        """Write the file. If that fails the broker goes on: the old file makes the next start doubt more, not less."""
        assert self._file is not None, "who doubts has one"
        try:
            self._file.write(upto)
        except OSError as error:
            self._tell(f"the next start will doubt the log, as its mark cannot be written: {error}")
