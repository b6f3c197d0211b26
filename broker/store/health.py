"""The states of the disk under a store, in words that go over the wire. Values only."""

from __future__ import annotations

import enum


class DiskHealth(enum.Enum):
    """States of a disk; the value is what a heartbeat says of it."""

    WELL = ""
    FULL = "full"
    """No room for another message."""
    STALLED = "stalled"
    """A write or a sync has been under way for too long."""
