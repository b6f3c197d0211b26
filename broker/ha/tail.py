"""The end of a slave's log when the slave becomes master: whole messages that consumers can see."""

from __future__ import annotations

from broker.journal import Journal
from remoting.errors import DamagedRecord


def cut_unfinished(journal: Journal) -> None:
    """Cut off a last message of which only a part came: what a master writes begins behind a whole one.

    Raises:
        StoreError: it cannot be cut.
    """
    end = journal.visible.offset
    try:
        for offset, size, *_ in journal.log.scan(end):
            end = offset + size
        if end < journal.end:
            end = journal.log.next_offset(end)  # past a blank at the end of a file
    except DamagedRecord as damage:
        end = damage.offset
    if end < journal.end:
        journal.truncate(end)


def undispatched(journal: Journal) -> bool:
    """Return whether consumers may see a message that they do not see yet."""
    return next(journal.log.scan(journal.visible.offset, journal.confirm_offset, check_crc=False), None) is not None
