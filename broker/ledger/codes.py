"""Requests of the acting ledger, which RocketMQ does not have, and their headers. It knows no entry."""

from __future__ import annotations

from typing import Final

from remoting.header import Header, Int64, header

READ_LEDGER: Final = 61_041
LEDGER_IS_KEPT: Final = 61_042


@header
class ReadLedgerRequest(Header):
    """61041: entries behind this mark."""

    term: Int64
    number: Int64
    hand_over: bool = False
    """From a master that comes back: the slave stops acting, for ``HAND_OVER_MS`` at most."""


@header
class ReadLedgerResponse(Header):
    """The answer; its body has entries, one behind the other."""

    term: Int64
    number: Int64
    """Ask from there on for more."""
    more: bool = False


@header
class LedgerIsKeptRequest(Header):
    """61042: entries up to this mark are kept by the master. What is decided or acknowledged is in its own ledger."""

    term: Int64
    number: Int64
    log_end: Int64 | None = None
    """What is decided or acknowledged, too, stands in its log in front of it. Who holds less of the log forgets none of
    that yet, and answers 1."""
