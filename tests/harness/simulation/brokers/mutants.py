"""Planted bugs of the brokers' cores, and what must notice each: a property of the simulation, or tests of the part.

Tests are named where another layer makes up for what is left out.
"""

from __future__ import annotations

from typing import Final

from tests.harness.simulation.brokers import (
    acted,
    clientside,
    confirming,
    deleted,
    disks,
    escaped,
    folders,
    handedover,
    kept,
    leading,
    popped,
    queues,
    replicating,
    resetting,
    serving,
    silences,
    standingin,
    stores,
    takenover,
    timers,
    transacted,
    waiting,
)

PLANTED: Final = (
    *confirming.PLANTED,
    *replicating.PLANTED,
    *leading.PLANTED,
    *silences.PLANTED,
    *kept.PLANTED,
    *disks.PLANTED,
    *stores.PLANTED,
    *folders.PLANTED,
    *queues.PLANTED,
    *serving.PLANTED,
    *waiting.PLANTED,
    *transacted.PLANTED,
    *timers.PLANTED,
    *popped.PLANTED,
    *deleted.PLANTED,
    *acted.PLANTED,
    *escaped.PLANTED,
    *handedover.PLANTED,
    *standingin.PLANTED,
    *clientside.PLANTED,
    *takenover.PLANTED,
    *resetting.PLANTED,
)
