"""What a broker is at present, for parts that answer as who they are. Whoever changes the role sets it.

It is read at each request, and knows nothing of how roles come about.
"""

from __future__ import annotations

from typing import Final

import attrs

MASTER_ID: Final = 0

REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"
"""What a slave answers, with code 2, to requests that only a master carries out."""


@attrs.define(eq=False)
class Standing:
    """``slave``: another broker is the group's master, or nobody is yet."""

    cluster_name: str
    broker_name: str
    address: str
    """Of clients: ``host:port``."""
    broker_id: int = MASTER_ID
    slave: bool = False
