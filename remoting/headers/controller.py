"""Headers of the controller's codes 904, 1001-1006, 1008, 1011-1013.

Field names are those of the Java header classes, their odd spellings included. Fields marked *ours* are optional and
ignored by Java peers.
"""

from __future__ import annotations

from remoting.header import Header, Int32, Int64, header, wire_name

NOBODY = -1
"""``broker_id`` of an election that no broker asked for."""
HEARTBEAT_TIMEOUT_MS_MAX = 1 << 40
"""Longest silence that a broker may announce, at controllers and name servers; a longer one counts as this."""


@header
class BrokerHeartbeatRequest(Header):
    """904, ``BrokerHeartbeatRequestHeader``. ``broker_id`` is missing when sent to a name server by an old broker."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_ms: Int64 | None = wire_name("heartbeatTimeoutMills", default=None)
    election_priority: Int32 | None = None
    master_lease_ms: Int64 | None = None
    """Ours: the broker fences itself when no active controller renewed its lease for so long."""
    all_ack_in_sync_state_set: bool | None = None
    """Ours: this master acknowledges only what every member of its SyncStateSet holds."""
    min_in_sync_replicas: Int32 | None = None
    """Ours: this master accepts writes only while the accepted SyncStateSet has so many members."""
    learner: bool | None = None
    """Ours: this replica must never be elected."""
    log_in_doubt: bool | None = None
    """Ours: its machine went down, and it may lack what it acknowledged; it is elected only if no other is better."""
    doubt_epoch: Int32 | None = None
    """Ours, beside ``log_in_doubt``: the group's master epoch as it was told before it sent this."""
    broker_life: Int64 | None = None
    """Ours: a number of the life of this process, another one after each start. Above 0."""
    silent_epoch: Int32 | None = None
    """Ours: the master of this epoch is silent on the sender's HA connection."""
    reaches: str | None = None
    """Ours, beside ``silent_epoch``: members that answered a probe of the sender, ``2,3``."""
    disk_trouble: str | None = None
    """Ours: ``full`` or ``stalled``, of the sender's disk."""
    heartbeat_interval_ms: Int64 | None = None
    """Ours: the sender beats so often."""


@header
class BrokerHeartbeatResponse(Header):
    """Answer to a two-way 904."""

    master_lease_renewed: bool | None = None
    """Ours: true only from the active controller while it holds its own raft lease. Java controllers send none."""
    log_in_doubt: bool | None = None
    """Ours: elections that this controller decides from now on know of the sender's doubt."""
    registered_life: Int64 | None = None
    """Ours: the life on record for this id, where it is not the sender's; 0: none is on record.

    Only the active controller sends it. A controller that sends it knows lives.
    """
    lease_epoch: Int32 | None = None
    """Ours, beside a renewed lease: the mastership that it is for."""


@header
class AlterSyncStateSetRequest(Header):
    """1001, ``AlterSyncStateSetRequestHeader``; body ``SyncStateSet`` with the epoch that the sender knows."""

    broker_name: str
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64 = 0
    cluster_name: str | None = None
    """Ours."""
    min_in_sync_replicas: Int32 | None = None
    """Ours: this master acknowledges what every member of its SyncStateSet holds, and nothing while that has fewer."""


@header
class AlterSyncStateSetResponse(Header):
    new_sync_state_set_epoch: Int32 = 0


@header
class ElectMasterRequest(Header):
    """1002, ``ElectMasterRequestHeader``: asks for a master, one that is named or any."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 | None = NOBODY
    designate_elect: bool = False
    invoke_time: Int64 = 0
    lost_epoch: Int32 | None = None
    """Ours: the master of this epoch asks for another one, as it may have lost what others hold of it."""
    yield_epoch: Int32 | None = None
    """Ours: the master of this epoch lives, is hindered, and asks for a successor."""
    yield_reason: str | None = None
    """Ours, beside ``yield_epoch``: ``silence`` of its members, or its own ``disk``."""
    holders: str | None = None
    """Ours, beside ``yieldReason=disk``: accepted members that may follow, ``2,3``."""


@header
class ElectMasterResponse(Header):
    """The same four fields answer 1003 beside the names."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_life: Int64 | None = None
    """Ours: of the master's process, where it told one."""
    yield_wait: bool | None = None
    """Ours: not yet, as members that live have not said whom they reach."""


@header
class RegisterBrokerToControllerRequest(Header):
    """1003, ``RegisterBrokerToControllerRequestHeader``: a broker tells its id and address."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    broker_address: str
    invoke_time: Int64 = 0
    learner: bool | None = None
    """Ours, as in a heartbeat: a capture of the traffic shows from the start how this broker acknowledges."""
    master_lease_ms: Int64 | None = None
    """Ours, as in a heartbeat."""
    all_ack_in_sync_state_set: bool | None = None
    """Ours, as in a heartbeat."""
    min_in_sync_replicas: Int32 | None = None
    """Ours, as in a heartbeat."""
    broker_life: Int64 | None = None
    """Ours, as in a heartbeat."""
    already_running: bool | None = None
    """Ours: this process was registered before, without its life, and goes on in its role."""
    known_lives: str | None = None
    """Ours: lives that the sender's store knows, ``71,72``. One that is on record and not among them wrote more."""


@header
class RegisterBrokerToControllerResponse(Header):
    """The four master fields are present only when a master exists and is alive."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_life: Int64 | None = None
    """Ours, as in the answer to 1002."""
    unknown_life: Int64 | None = None
    """Ours, beside 2014: the life on record, which is not among ``known_lives``. Nothing else is in the way."""


@header
class GetReplicaInfoRequest(Header):
    """1004, ``GetReplicaInfoRequestHeader``: who is master and who is in sync."""

    broker_name: str
    cluster_name: str | None = None
    """Ours."""


@header
class GetSyncStateDataRequest(Header):
    """1006; Java's has no header."""

    cluster_name: str | None = None
    """Ours."""


@header
class GetReplicaInfoResponse(Header):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 = 0
    master_life: Int64 | None = None
    """Ours, as in the answer to 1002."""


@header
class GetMetadataResponse(Header):
    """1005, ``GetMetaDataResponseHeader``. ``peers`` is ``n0:ip:port;n1:ip:port;``."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None
    controller_id: str | None = None
    """Ours: which of the peers answers."""
    committed_index: Int64 | None = None
    """Ours: above 0 this group has begun."""
    reads_format: Int32 | None = None
    """Ours: the newest format of commands and snapshots that this controller reads."""
    format_in_use: Int32 | None = None
    """Ours: the format that commands and snapshots of this group are written in, as far as it knows."""


@header
class NotLeaderResponse(Header):
    """2007, to all that the active controller alone answers; Java's has no header."""

    controller_leader_address: str | None = None
    """Ours: whom to ask instead."""


@header
class NotifyBrokerRoleChangedRequest(Header):
    """1008, ``NotifyBrokerRoleChangedRequestHeader``: a group's master and epochs; body ``SyncStateSet``."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None
    master_life: Int64 | None = None
    """Ours, as in the answer to 1002."""


@header
class CleanBrokerDataRequest(Header):
    """1011, ``CleanControllerBrokerDataRequestHeader``. ``broker_controller_ids_to_clean`` is ``1;2``."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 = 0


@header
class GetNextBrokerIdRequest(Header):
    """1012, ``GetNextBrokerIdRequestHeader``: which id a new replica may apply for."""

    cluster_name: str
    broker_name: str


@header
class GetNextBrokerIdResponse(Header):
    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


@header
class ApplyBrokerIdRequest(Header):
    """1013, ``ApplyBrokerIdRequestHeader``. ``register_check_code`` is ``address;millis``."""

    cluster_name: str
    broker_name: str
    applied_broker_id: Int64
    register_check_code: str


@header
class ApplyBrokerIdResponse(Header):
    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None
    """Ours, on a conflict: the id to try next (Persistent unique BrokerId design, step 4)."""
