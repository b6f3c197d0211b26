"""The losses that each mode allows, as a table: the only excuses that the properties of durability accept.

    mode                                kills   power cuts                            clean failover
    all in sync, sync flush             0       0                                     0
    all in sync, async flush            0       bytes that a power cut took from      0
                                                the new master, if all electable
                                                brokers lost some (INV_B29)
    all in sync, an older copy put      bytes that the new master lacks, if all electable brokers lost some (INV_B29)
    back
    fewer acknowledgements              0 after a restart of the same master, else all that the new one lacks
    unclean election                    all that the elected broker lacks

Only the end of a log may be lost.
"""

from __future__ import annotations

import enum

import attrs


class Excuse(enum.Enum):
    """Reasons why a new master may lack messages that were acknowledged or shown."""

    UNCLEAN = "loss by an unclean election"
    POWER = "loss by a power cut, not synced"
    OLDER = "loss by an older copy, and nobody had more"
    MODE = "loss by the mode"
    BESIDE = "loss of what nobody acknowledged, and a master showed that is to show all, as Java's do"


@attrs.frozen
class Loss:
    """Facts about a new master that lacks messages."""

    all_ack: bool
    sync_flush: bool
    unclean: bool
    """An unclean election has happened."""
    unsafe: bool
    """A power cut took unsynced bytes from this broker, and it has not caught up since."""
    same: bool
    """It is the broker that acknowledged last."""
    older: bool = False
    """An older copy of this broker's directory was put back, and it has not caught up since."""
    shown_early: bool = False
    """It lacks only messages that were never acknowledged, and that a master showed unconfirmed
    (``young_master_shows_all``)."""


def excuse(loss: Loss) -> Excuse | None:
    """Return the reason that allows this loss; None: it is not allowed."""
    if loss.unclean:
        return Excuse.UNCLEAN
    if not loss.sync_flush and loss.unsafe:
        return Excuse.POWER
    if loss.older:
        return Excuse.OLDER
    if not loss.all_ack and not loss.same:
        return Excuse.MODE
    return Excuse.BESIDE if loss.shown_early else None
