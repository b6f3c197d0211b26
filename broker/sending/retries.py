"""How often a message may be tried. It knows a group and its client's word, and not the message."""

from __future__ import annotations

from typing import Final

from broker.store.tables import SubscriptionGroup

MAX_RECONSUME_TIMES_VERSION: Final = 121
"""``V3_4_9``: clients from it on say how often a message may be tried."""


def retries_max(group: SubscriptionGroup, version: int, asked: int | None) -> int:
    """What the group says, or a client that is new enough to say it itself."""
    return group.retry_max_times if asked is None or version < MAX_RECONSUME_TIMES_VERSION else asked
