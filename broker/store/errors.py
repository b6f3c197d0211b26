"""Errors of the store, as types that a caller must handle.

    StoreError
    ├── WrongStore   a directory that is in use, or whose files have other sizes than configured
    ├── OffsetGone   nothing is kept at that offset: it was deleted, or is not there yet
    ├── StoreFull    no room on the disk; nothing of that call was kept
    └── StoreFailed  a write or a sync failed: what was not flushed before is in doubt, reopening decides

What it raises of single messages, ``MessageIllegal`` and ``DamagedRecord``, is told by ``remoting.errors``.
"""

from __future__ import annotations


class StoreError(Exception):
    """The base of what the store raises on its own account."""


class WrongStore(StoreError):
    """This directory cannot be opened as configured. Says what to change."""


class OffsetGone(StoreError):
    """``offset`` is outside ``least`` to ``most``."""

    def __init__(self, offset: int, least: int, most: int) -> None:
        super().__init__(f"offset {offset} is not in {least} to {most}")
        self.offset, self.least, self.most = offset, least, most


class StoreFull(StoreError):
    """The disk has no room. Sends are refused until there is; reads go on."""


class StoreFailed(StoreError):
    """The disk refused a write or a sync. Final for this process."""
