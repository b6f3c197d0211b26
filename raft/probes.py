"""Judges for health checks whether a node is healthy and ready. Each answer is "" or says in words why not.

*Healthy*: it works as far as its surroundings do; otherwise it must be restarted. *Ready*: it serves now, as a leader
or as a follower of one. Pure, over the same statuses and situations as ``explain``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raft.explain import SITUATIONS, diagnose
from raft.status import Status

UNHEALTHY: Final = ("faulted", "storage_failed")
UNREADY: Final = (*UNHEALTHY, "not_a_member", "no_leader", "no_quorum", "not_ready", "installing")
"""Names of the situations, as in ``explain``, in which a node is not ready."""


def unhealthy(statuses: Iterable[Status]) -> str:
    """Return words for each group of a process that is not healthy; "" if all are."""
    return _told(statuses, UNHEALTHY)


def unready(statuses: Iterable[Status]) -> str:
    """Return words for each group of a process that is not ready; "" if all are, and there is one."""
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
