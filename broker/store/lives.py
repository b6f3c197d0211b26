"""Keeps, beside a log, the lives with which its broker registered at controllers, so that an older copy shows.

Each process of a broker registers a number of its own, its *life*, and controllers keep the last one. It is noted here
before it is registered. So the life on record is one of these, unless the store is an older copy: another process has
registered since, with a log that may hold more. A process that was killed on its way leaves two, the one before and its
own, and either may be on record. It knows a small file, and no controller.
"""

from __future__ import annotations

from typing import Final

from broker.store.files import Files, read_whole, write_whole
from broker.store.trust import LogTrust

PATH: Final = "brokerLives"
ANY: Final = 0
"""In place of lives that nobody noted: any life may be on record, as where an earlier release wrote this store."""
LIVES_MAX: Final = 16
"""Most lives that are kept: the last ones, of processes that were killed on their way, and the one before them."""
_DIGITS_MAX: Final = 19


class StoreLives:
    """The file of lives, and the trust in the log beside it."""

    def __init__(self, files: Files, trust: LogTrust) -> None:
        self._files, self._trust = files, trust

    def read(self) -> tuple[int, ...]:
        """Return the lives that may be on record. A file that cannot be read tells of none: the log is compared."""
        data = read_whole(self._files, PATH)
        return (ANY,) if data is None else _from_text(data.decode(errors="replace"))

    def write(self, lives: tuple[int, ...], *, doubt: bool = False) -> None:
        """Replace the file. ``doubt``: the log is an older copy, and lacks what this replica acknowledged.

        That comes first: a process that is killed in between is judged again. Raises ``OSError``.
        """
        text = "".join(f"{life}\n" for life in lives)
        assert lives and _from_text(text) == lives, "what is written is read back"
        if doubt:
            self._trust.doubt()
        write_whole(self._files, PATH, text.encode())


def _from_text(text: str) -> tuple[int, ...]:
    lines = text.split()
    known = all(line.isascii() and line.isdecimal() and len(line) <= _DIGITS_MAX for line in lines)
    return tuple(map(int, lines)) if known else ()
