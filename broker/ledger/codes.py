"""Requests 61041 and 61042 of the ledger, and their headers. RocketMQ does not have them. It knows no entry."""

from __future__ import annotations

from typing import Final

from remoting.header import Header, Int64, header

READ_LEDGER: Final = 61_041
LEDGER_IS_KEPT: Final = 61_042


@header
class ReadLedgerRequest(Header):
    """Request 61041: asks for the entries after this mark."""

    term: Int64
    number: Int64
    hand_over: bool = False
    """True from a master that comes back: the slave takes no more entries, for ``HAND_OVER_MS`` at most."""
    decided: bool = False
    """True from a broker that is about to decide transactions: the answer waits for decisions that are in flight."""


@header
class ReadLedgerResponse(Header):
    """The answer to 61041; its body has consecutive entries."""

    term: Int64
    number: Int64
    """The mark to ask from next."""
    more: bool = False


@header
class LedgerIsKeptRequest(Header):
    """Request 61042: the master has entries up to this mark on disk, lasting ones in its own ledger."""

    term: Int64
    number: Int64
    log_end: Int64 | None = None
    """If set, the log includes lasting entries below this offset. A slave whose log is shorter keeps them, and answers
    1."""
