"""The table of consumer groups, its version, and which topics are forbidden to a group.

It does no I/O: ``on_change`` says, in the turn of the change, that it must be written to disk.
Source: ``SubscriptionGroupManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs

from broker.moments import Moment
from broker.store.tables import SubscriptionGroup, SubscriptionGroups
from broker.topics.names import group_fault
from remoting.bodies.namesrv import DataVersion

SYSTEM: Final = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
)
"""Groups of every broker from its start."""
SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
READ: Final = 1 << 2
"""Bit of what can be forbidden to a group for one topic."""


@attrs.frozen
class GroupsConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    auto_create_subscription_group: bool = True
    """A heartbeat or a pull of an unknown group makes it."""
    enable_create_sys_group: bool = True
    """True: the system's own groups are made at first use even if ``auto_create_subscription_group`` is false."""
    enable_split_metadata: bool = True
    split_metadata_size: int = 2_000
    clients_groups_max: int = 100_000
    """Ours: number of groups from which on clients make no more; administrators may."""


class GroupTable:
    """The table. ``now_ms`` is the wall clock: it stamps versions, and decides nothing."""

    def __init__(self, config: GroupsConfig, now_ms: Callable[[], int], kept: SubscriptionGroups | None = None) -> None:
        """``kept``: what was on disk."""
        self.config = config
        self._now_ms = now_ms
        self.state_version = 0
        """The master epoch, under a controller."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change: the version has moved."""
        self.gone: Moment[[str]] = Moment("GroupTable.gone")
        """Called with the name of a group that was deleted here."""
        self.barred: Moment[[Collection[str]]] = Moment("GroupTable.barred")
        """Called after ``on_change`` with names of groups that may not read all topics, among them those that might."""
        kept = kept or SubscriptionGroups()
        self._version = kept.data_version
        self._groups = {name: SubscriptionGroup(name) for name in SYSTEM} | kept.subscription_group_table
        self._forbidden = {group: dict(topics) for group, topics in kept.forbidden_table.items()}

    # --- reading ---------------------------------------------------------------------------------------------

    def get(self, name: str) -> SubscriptionGroup | None:
        return self._groups.get(name)

    @property
    def groups(self) -> Mapping[str, SubscriptionGroup]:
        return self._groups

    @property
    def forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """Return the bits of what is forbidden, by group and topic."""
        return self._forbidden

    @property
    def version(self) -> DataVersion:
        return self._version

    def snapshot(self) -> SubscriptionGroups:
        """The content of ``subscriptionGroup.json``, as it is now."""
        return SubscriptionGroups(
            dict(self._groups), {group: dict(topics) for group, topics in self._forbidden.items()}, self._version)

    def is_forbidden(self, group: str, topic: str, bit: int = READ) -> bool:
        topics = self._forbidden.get(group)
        return topics is not None and bool(topics.get(topic, 0) & bit)

    # --- changing --------------------------------------------------------------------------------------------

    def find(self, name: str, *, keep: bool = True) -> SubscriptionGroup | None:
        """Return the group, and make it if that is allowed; None: it is not, or no group can have this name.

        Without ``keep`` the table stays as it is, and the group is returned as it would be made.
        """
        found = self._groups.get(name)
        if found is not None:
            return found
        config = self.config
        allowed = config.auto_create_subscription_group or (
            config.enable_create_sys_group and name.startswith(SYSTEM_PREFIX))
        if not allowed or group_fault(name) is not None or len(self._groups) >= config.clients_groups_max:
            return None
        found = SubscriptionGroup(name)
        if keep:
            self._groups[name] = found
            self._step()
        return found

    def update(self, groups: Iterable[SubscriptionGroup]) -> None:
        """Make or change groups; their attributes are final ones."""
        changed = {group.group_name: group for group in groups}
        self._groups |= changed
        self._step()
        self._tell_barred(changed)

    def delete(self, name: str) -> bool:
        """Forget the group. False: it was not there."""
        self._forbidden.pop(name, None)
        found = self._groups.pop(name, None) is not None
        if found:
            self._step()
            self.gone(name)
        return found

    def forbid(self, group: str, topic: str, forbidden: bool, bit: int = READ) -> None:
        """Set or clear a bit for one topic."""
        topics = self._forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        topics[topic] = bits | bit if forbidden else bits & ~bit
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._forbidden[group]
        self._step()
        self._tell_barred((group,))

    def replace(self, table: SubscriptionGroups) -> None:
        """Take over another broker's table, with its version: a slave follows its master."""
        self._groups = dict(table.subscription_group_table)
        self._forbidden = {group: dict(topics) for group, topics in table.forbidden_table.items()}
        self._version = table.data_version
        self.on_change()
        self._tell_barred(self._groups)

    def copy(self, answer: bytes) -> None:
        """Take over a master's answer to 201. Raises ``BodyError``."""
        told = SubscriptionGroups.from_json(answer)
        if told.data_version != self._version:
            self.replace(told)

    def join(self, answer: bytes) -> None:
        """Take what a member knows better, from its answer to 201: groups missing here, and all of a newer version.

        No group is deleted. Raises ``BodyError``."""
        told = SubscriptionGroups.from_json(answer)
        newer = self._version.precedes(told.data_version)
        taken = {name: group for name, group in told.subscription_group_table.items()
                 if name not in self._groups or (newer and group != self._groups[name])}
        forbidden = {name: dict(topics) for name, topics in told.forbidden_table.items()
                     if name in taken or (newer and topics != self._forbidden.get(name))}
        if taken or forbidden:
            self._groups |= taken
            self._forbidden |= forbidden
            self._version = max(self._version, told.data_version, key=lambda version: version.counter)
            self._step()
            self._tell_barred({**taken, **forbidden})

    def _tell_barred(self, names: Iterable[str]) -> None:
        """Of these groups, tell which may not read, or not all topics."""
        groups, forbidden = self._groups, self._forbidden
        barred = {name for name in names if name in forbidden or (name in groups and not groups[name].consume_enable)}
        if barred:
            self.barred(barred)

    def _step(self) -> None:
        self._version = DataVersion(self.state_version, self._now_ms(), self._version.counter + 1)
        self.on_change()
