"""Counters of a name server, for any exporter. Plain numbers that only grow; levels are read off the tables.

Knows no exporter and no format.
"""

from __future__ import annotations

import attrs

from controller.namesrv.verdict import Verdict


@attrs.define
class Counters:
    """Counts since the process started."""

    requests: dict[int, int] = attrs.field(factory=dict)
    """Requests by code; codes without a handler are counted under -1."""
    failures: dict[int, int] = attrs.field(factory=dict)
    """Answers other than SUCCESS, by response code."""
    routes_encoded: int = 0
    """Route answers that were not at hand already."""
    registrations: int = 0
    """Registrations that were accepted."""
    registrations_refused: dict[Verdict, int] = attrs.field(factory=dict)
    """Refused registrations by reason."""
    registrations_damaged: int = 0
    """Registrations whose CRC does not match."""
    brokers_unregistered: int = 0
    """Brokers that said that they leave."""
    brokers_closed: int = 0
    """Brokers that left because their connection ended."""
    brokers_silent: int = 0
    """Brokers that left because they said nothing for their timeout."""
    masters_lost: int = 0
    """Masters that left so while their group has other replicas."""
    notices_sent: int = 0
    notices_failed: int = 0
    saves_failed: int = 0
    """Writes of the key-value table or the configuration that the disk refused."""
