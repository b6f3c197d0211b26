"""Policies that choose the master among several electable brokers: a small interface, chosen by name.

A policy sees only brokers that may win (alive, no learners, in the pool that the election draws from), so it can
choose badly but not wrongly. Numbers are compared at full width: Java subtracts offsets as 32-bit integers and elects
the shorter log when they are 2 GiB apart (apache/rocketmq#10578).
This module knows no groups, epochs of masters or triggers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from controller.metadata.commands import LiveReplica


class ElectPolicy(Protocol):
    """Chooses, by its arguments alone: every controller asks the same question and acts on its own answer."""

    def choose(self, candidates: Mapping[int, LiveReplica], preferred: int | None) -> int:
        """One id of ``candidates``, which is not empty. ``preferred`` may be anybody, or None."""


class Longest:
    """``DefaultElectPolicy``: the latest epoch, the longest log, the smaller priority, the smaller id, in turn."""

    def choose(self, candidates: Mapping[int, LiveReplica], preferred: int | None) -> int:
        assert candidates, "without a candidate no policy is asked"
        return min(candidates, key=lambda broker_id: _longest(broker_id, candidates[broker_id]))


class Preferred:
    """The preferred broker if its log is not behind what is known to be confirmed; else the longest.

    apache/rocketmq#5588. Meant for ``allAckInSyncStateSet``: elsewhere a shorter log may lack what was acknowledged.
    """

    def choose(self, candidates: Mapping[int, LiveReplica], preferred: int | None) -> int:
        caught_up = _caught_up(candidates)
        return preferred if preferred in caught_up else min(caught_up, key=lambda i: _longest(i, caught_up[i]))


class Priority:
    """The smallest priority among those not behind what is known to be confirmed, then the longest.

    apache/rocketmq#5569. Meant for ``allAckInSyncStateSet``, like ``Preferred``.
    """

    def choose(self, candidates: Mapping[int, LiveReplica], preferred: int | None) -> int:
        caught_up = _caught_up(candidates)
        return min(caught_up, key=lambda i: (caught_up[i].priority, *_longest(i, caught_up[i])))


def _longest(broker_id: int, replica: LiveReplica) -> tuple[int, int, int, int]:
    return -replica.epoch, -replica.max_offset, replica.priority, broker_id


def _caught_up(candidates: Mapping[int, LiveReplica]) -> dict[int, LiveReplica]:
    """Return the candidates of the latest epoch whose log holds all that any candidate knows to be confirmed.

    There is always one.
    """
    epoch = max(replica.epoch for replica in candidates.values())
    latest = {broker_id: replica for broker_id, replica in candidates.items() if replica.epoch == epoch}
    longest = max(replica.max_offset for replica in latest.values())
    # A confirmed offset beyond every log is a broker's mistake: it must not rule out all candidates.
    confirmed = min(longest, max(replica.confirm_offset for replica in candidates.values()))
    found = {broker_id: replica for broker_id, replica in latest.items() if replica.max_offset >= confirmed}
    assert any(replica.max_offset == longest for replica in found.values()), "the longest log is never left out"
    return found


POLICIES: Final[Mapping[str, ElectPolicy]] = {
    "default": Longest(),
    "preferred": Preferred(),
    "priority": Priority(),
}
"""Policies by the name that configuration and commands carry. A new name is a new format: see ``codec``."""
