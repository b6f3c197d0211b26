"""Finds the group that a request means which names a broker but no cluster, as codes 1001, 1004 and 1006 do.

Java keys groups by broker name alone. Here two clusters may use one name, so a name is taken for, in this order: the
group in the cluster that the request gives, the group that the connection registered as, the only group of that name.
If that leaves several, nobody guesses. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.metadata.groups import GroupKey
from controller.metadata.outcomes import Refused
from remoting.codes import ResponseCode


def resolve(name: str, cluster: str | None, identity: GroupKey | None, named: Sequence[GroupKey]) -> GroupKey | Refused:
    """The group that is meant. ``identity`` is the connection's, if it has one; ``named`` all groups of that name.

    A name that no group has gives a key that no group has, for which each request has its own answer.
    """
    assert all(key.name == name for key in named), "all are groups of that name"
    found = _meant(name, cluster, identity, named)
    assert isinstance(found, Refused) or found.name == name, "nobody is answered for a group of another name"
    return found


def _meant(name: str, cluster: str | None, identity: GroupKey | None, named: Sequence[GroupKey]) -> GroupKey | Refused:
    if cluster and cluster.strip():
        return GroupKey(cluster, name)
    if identity is not None and identity.name == name:
        return identity
    if len(named) > 1:
        clusters = ", ".join(sorted(key.cluster for key in named))
        return Refused(code=ResponseCode.CONTROLLER_INVALID_REQUEST,
                       remark=f"broker name {name} is in clusters {clusters}; say which one is meant by clusterName")
    return named[0] if named else GroupKey("", name)
