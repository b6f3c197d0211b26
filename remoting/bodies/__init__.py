"""Typed bodies of every code served, by the part of the system that they belong to. All of them by name here."""

from remoting.bodies.broker import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from remoting.bodies.controller import (
    BrokerMemberGroup,
    BrokerNames,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    EpochEntry,
    EpochEntryCache,
    GetBrokerMemberGroupResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from remoting.bodies.namesrv import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)

__all__ = [
    "BrokerData",
    "BrokerMemberGroup",
    "BrokerNames",
    "BrokerReplicasInfo",
    "ClusterInfo",
    "DataVersion",
    "ElectMasterResponseBody",
    "EpochEntry",
    "EpochEntryCache",
    "GetBrokerMemberGroupResponseBody",
    "HAClientRuntimeInfo",
    "HAConnectionRuntimeInfo",
    "HARuntimeInfo",
    "KVTable",
    "QueueData",
    "RegisterBrokerBody",
    "ReplicaIdentity",
    "ReplicasInfo",
    "SyncStateSet",
    "TopicConfig",
    "TopicConfigSerializeWrapper",
    "TopicList",
    "TopicQueueMappingInfo",
    "TopicRouteData",
]
