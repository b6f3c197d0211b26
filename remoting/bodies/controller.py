"""Bodies of the controller's codes 1001-1008, and what brokers answer about replicas.

Fields are those of the Java classes; which code carries what stands at each class.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

import attrs

from remoting.body import Body, body
from remoting.errors import BodyError
from remoting.fastjson import dumps, loads
from remoting.fields import Int32, Int64, shown

END_OFFSET_OPEN: Final = 2**63 - 1
"""``end_offset`` of an epoch that still grows."""


@body
class SyncStateSet(Body):
    """1001 both ways, 1003, 1004, 1008. Java refuses it without the set, and so does this."""

    json_bytes_max: ClassVar[int] = 1 << 16
    sync_state_set: frozenset[Int64]
    sync_state_set_epoch: Int32 = 0


@body
class BrokerMemberGroup(Body):
    """Addresses of a group's replicas by broker id."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = attrs.field(factory=dict)


@body
class GetBrokerMemberGroupResponseBody(Body):
    """Answer to 901: the members of a broker group."""

    broker_member_group: BrokerMemberGroup | None = None


@body
class ElectMasterResponseBody(Body):
    """1002: all members, and the SyncStateSet after the election. Without members when the old master stays.

    Tools of 5.0 read the whole body as a ``BrokerMemberGroup``, so its fields are written once more beside it; later
    ones pass over what they do not know.
    """

    sync_state_set: frozenset[Int64] = frozenset()
    broker_member_group: BrokerMemberGroup | None = None

    def to_plain(self) -> dict[str, Any]:
        members = self.broker_member_group
        return {**(members.to_plain() if members is not None else {}), **super().to_plain()}


@body
class ReplicaIdentity(Body):
    """One replica of ``ReplicasInfo``, in sync or not."""

    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    alive: bool = False


@body
class ReplicasInfo(Body):
    """A controller's record of one group. Master id and address are missing when there is no master."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 = 0
    sync_state_set_epoch: Int32 = 0
    in_sync_replicas: list[ReplicaIdentity] = attrs.field(factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = attrs.field(factory=list)


@body
class BrokerReplicasInfo(Body):
    """Answer to 1006, by broker name; names that the controller does not know are left out."""

    replicas_info_table: dict[str, ReplicasInfo] = attrs.field(factory=dict)


@attrs.frozen
class BrokerNames:
    """1006's request: a bare array of names."""

    names: list[str]

    def to_json(self) -> bytes:
        return dumps(self.names)

    @classmethod
    def from_json(cls, data: bytes, bytes_max: int = 1 << 20) -> Self:
        """An array of names; raises ``BodyError`` for anything else."""
        names: Any = loads(data, bytes_max)
        if type(names) is not list:
            raise BodyError(f"broker names are {shown(names)}; an array of strings is needed")
        for at, name in enumerate(names):
            if type(name) is not str:
                raise BodyError(f"broker name {at} is {shown(name)}; a string is needed")
        return cls(names)


@body
class EpochEntry(Body):
    """One master's reign: its epoch and the offsets it wrote. Java 5.3 reads a missing end as 0, 5.5 as open."""

    epoch: Int32
    start_offset: Int64
    end_offset: Int64 = END_OFFSET_OPEN


@body
class EpochEntryCache(Body):
    """Answer to 1007. ``broker_id`` is the role's: 0 for the master."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 = 0
    epoch_list: list[EpochEntry] = attrs.field(factory=list)
    max_offset: Int64 = 0
