"""Whether a node is healthy and whether it is ready, for health checks: each answer is "" or says in words why not.

*Healthy*: it would work if its surroundings did; one that is not has to be restarted. *Ready*: it serves now, as leader
or as a follower of one. Pure, over the same statuses and situations as ``explain``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raft.explain import SITUATIONS, diagnose
from raft.status import Status

UNHEALTHY: Final = ("faulted", "storage_failed")
UNREADY: Final = (*UNHEALTHY, "not_a_member", "no_leader", "no_quorum", "not_ready", "installing")
"""Situations by the names that ``explain`` gives them."""


def unhealthy(statuses: Iterable[Status]) -> str:
    """Of all groups of a process."""
    return _told(statuses, UNHEALTHY)


def unready(statuses: Iterable[Status]) -> str:
    """A process serves when every one of its groups does, and there is one."""
    known = list(statuses)
    if not known:
        return "No group is open."
    behind = [f"{each.node_id}: No leader is known." for each in known
              if each.leader is None and each.node_id in each.membership.everyone
              and not each.membership.votes(each.node_id) and not each.faulted]
    return "\n".join(filter(None, [_told(known, UNREADY), *behind]))


def _told(statuses: Iterable[Status], situations: Iterable[str]) -> str:
    assert dict(SITUATIONS).keys() >= set(situations), "what is looked for has a name"
    lines = []
    for status in statuses:
        found = dict(diagnose(status))
        lines += [f"{status.node_id}: {found[name]}" for name in situations if name in found]
    return "\n".join(lines)
