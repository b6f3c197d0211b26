"""The keys of slave acting master. They are values: a live key comes as another configuration."""

from __future__ import annotations

from typing import Final

import attrs

from remoting.daemon.keys import key

_INT_MAX: Final = 2**31 - 1


@attrs.frozen(kw_only=True, slots=False)
class ActingKeys:
    """The broker's configuration keys that belong to slave acting master."""

    enable_slave_acting_master: bool = key(
        False, "without controllers: while the master is away the slave of the smallest id acts for it, as far as "
        "nothing is written; and writes are refused as RIP-34 says where too few replicas live")
    compatible_with_old_name_srv: bool = key(
        True, "with enableSlaveActingMaster, name servers before RocketMQ 5 get heartbeats and are asked for the group "
        "by codes that they know")
    enable_remote_escape: bool = key(
        False, "what a slave delivers while it acts goes to masters of other groups of the cluster; else only to "
        "masters of its own container, or it waits", live=True)
    acting_right_ms: int = key(
        3_000, "ours: for so long after its question a slave goes by a name server's word that there is no master; a "
        "master that comes back waits as long before it delivers; must be the same at all brokers of a group", least=30,
        most=_INT_MAX)
