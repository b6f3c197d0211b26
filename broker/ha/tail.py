"""The end of a slave's log when the slave becomes master: whole messages, and queue offsets behind them."""

from __future__ import annotations

from broker.journal import Journal
from broker.store.errors import DamagedRecord


def take_over(journal: Journal) -> None:
    """Cut off a last message of which only a part came. Raises ``StoreFailed``."""
    store = journal.store
    begin = store.dispatched_offset
    try:
        for _ in store.log.scan(begin, check_crc=False):
            pass
    except DamagedRecord as damage:
        journal.truncate(damage.offset)
    store._resume(begin)


def undispatched(journal: Journal) -> bool:
    """Whether there is something that consumers may see and do not see yet."""
    store = journal.store
    found = store.log.scan(store.dispatched_offset, journal.confirm_offset, check_crc=False)
    return next(found, None) is not None
