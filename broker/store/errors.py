"""What can go wrong in the store, as types that a caller must handle.

    StoreError
    ├── MessageIllegal   a message that no record has room for: nothing was kept; the sender must change it
    ├── DamagedRecord    bytes that are no record; says where and why
    ├── WrongStore       a directory that is in use, or whose files have other sizes than configured
    ├── OffsetGone       nothing is kept at that offset: it was deleted, or is not there yet
    ├── StoreFull        no room on the disk; nothing of that call was kept
    └── StoreFailed      a write or a sync failed: what was not flushed before is in doubt, reopening decides

It knows nothing but the standard library.
"""

from __future__ import annotations


class StoreError(Exception):
    """Whatever the store raises on its own account."""


class MessageIllegal(StoreError):
    """A message that cannot be stored. Says which part, and how much is allowed."""


class DamagedRecord(StoreError):
    """No record at ``offset``. A reader of a log that is being recovered stops there."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"no record at offset {offset}: {reason}")
        self.offset, self.reason = offset, reason


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
