"""What a group in each mode may lose, as a table: the only excuses that the properties of durability take.

    mode                                kills   power cuts                            clean failover
    all in sync, sync flush             0       0                                     0
    all in sync, async flush            0       what a broker leads without, that     0
                                                a power cut took from it, and from
                                                all who might have led (INV_B29)
    fewer acknowledgements              0 after a restart of the same master; else what it lacked
    unclean election                    what the elected one lacked

What may go is always an end of the log.
"""

from __future__ import annotations

import enum

import attrs


class Excuse(enum.Enum):
    """Why a new master may lack what was acknowledged, or shown."""

    UNCLEAN = "loss by an unclean election"
    POWER = "loss by a power cut, not synced"
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
    shown_early: bool = False
    """It lacks nothing but what a master showed though it did not know it to be confirmed, as
    ``young_master_shows_all`` has it: it was acknowledged to nobody."""


def excuse(loss: Loss) -> Excuse | None:
    """None: nothing may be lost here."""
    if loss.unclean:
        return Excuse.UNCLEAN
    if not loss.sync_flush and loss.unsafe:
        return Excuse.POWER
    if not loss.all_ack and not loss.same:
        return Excuse.MODE
    return Excuse.BESIDE if loss.shown_early else None
