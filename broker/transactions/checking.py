"""Decides when to ask the producers of an open transaction, when to give it up, and when a decision is too late.

Pure values. Source: ``TransactionalMessageServiceImpl.check`` and ``EndTransactionProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from broker.transactions.records import Half

_HOUR_MS: Final = 3_600_000


class Verdict(enum.Enum):
    WAIT = "wait"
    ASK = "ask"
    GIVE_UP = "give up"


@attrs.frozen(kw_only=True)
class CheckLimits:
    """Keys of ``BrokerConfig`` and ``MessageStoreConfig`` and their defaults."""

    transaction_time_out: int = 6_000
    transaction_check_max: int = 15
    file_reserved_time: int = 72
    """Hours after which an open transaction is given up."""


def verdict(half: Half, now_ms: int, limits: CheckLimits) -> Verdict:
    """Return what a round does about this half. ``now_ms``: the wall clock, since the birth time is the producer's."""
    age_ms = now_ms - half.born_ms
    if half.checks >= limits.transaction_check_max or now_ms - half.since_ms > limits.file_reserved_time * _HOUR_MS:
        return Verdict.GIVE_UP
    if half.immunity_ms is not None and half.immunity_ms >= 0:
        return Verdict.WAIT if age_ms <= half.immunity_ms else Verdict.ASK
    return Verdict.WAIT if 0 <= age_ms <= limits.transaction_time_out else Verdict.ASK


def is_late(half: Half, now_ms: int, limits: CheckLimits) -> bool:
    """Return whether an unasked decision comes after the immunity time that the producer set."""
    return half.immunity_ms is not None and (
        now_ms - half.born_ms > max(half.immunity_ms, limits.transaction_time_out))
