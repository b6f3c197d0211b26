"""Computes how often a message may be tried, by its group and its client. It does not know the message."""

from __future__ import annotations

from typing import Final

from broker.store.tables import SubscriptionGroup

MAX_RECONSUME_TIMES_VERSION: Final = 121
"""``V3_4_9``: clients from it on say how often a message may be tried."""


def retries_max(group: SubscriptionGroup, version: int, asked: int | None) -> int:
    """Return the group's limit, or the client's own, if the client is new enough to tell one."""
    return group.retry_max_times if asked is None or version < MAX_RECONSUME_TIMES_VERSION else asked
