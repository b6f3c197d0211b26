"""Headers of the name server's codes; 904 is with the controller's. 106, 206, 304, 311-313, 318 and 319 have none.

Field names are those of the Java header classes; codes that ask with the same fields share a class.
"""

from __future__ import annotations

from remoting.header import Header, Int32, Int64, header


@header
class PutKVConfigRequest(Header):
    """100: stores a value under a namespace and key."""

    namespace: str
    key: str
    value: str


@header
class KVKeyRequest(Header):
    """101 and 102: reads or removes one value."""

    namespace: str
    key: str


@header
class KVValueResponse(Header):
    """Answer to 101: the value that is stored."""

    value: str | None = None


@header
class KVNamespaceRequest(Header):
    """219: all values of a namespace."""

    namespace: str


@header
class RegisterBrokerRequest(Header):
    """103: a broker tells that it lives, and its topics; body ``RegisterBrokerBody``."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    ha_server_addr: str | None = None
    heartbeat_timeout_millis: Int64 | None = None
    """Time that the broker may be silent; a broker that announces none has two minutes."""
    enable_acting_master: bool | None = None
    """None: a broker of before 5.0."""
    compressed: bool = False
    body_crc32: Int32 = 0
    """``crc32(body) & 0x7FFFFFFF``; 0 is not checked."""


@header
class RegisterBrokerResponse(Header):
    """Tells a slave where its master is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@header
class UnregisterBrokerRequest(Header):
    """104: a broker signs off, or is signed off."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class QueryDataVersionRequest(Header):
    """322; body ``DataVersion``, both ways."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class QueryDataVersionResponse(Header):
    """``changed``: the broker should register again."""

    changed: bool = True


@header
class GetRouteInfoRequest(Header):
    """105: where the queues of a topic are."""

    topic: str
    accept_standard_json_only: bool | None = None


@header
class BrokerNameRequest(Header):
    """Forbids (205) or allows (327) writing to all topics of a broker."""

    broker_name: str


@header
class WipeWritePermResponse(Header):
    """Answer to 205: how many topics changed."""

    wipe_topic_count: Int32 = 0


@header
class AddWritePermResponse(Header):
    """Answer to 327: how many topics changed."""

    add_topic_count: Int32 = 0


@header
class DeleteTopicRequest(Header):
    """216: forget a topic, in one cluster or in all."""

    topic: str
    cluster_name: str | None = None


@header
class RegisterTopicRequest(Header):
    """217: sets a topic's route by hand; body ``TopicRouteData``."""

    topic: str


@header
class GetTopicsByClusterRequest(Header):
    """224: all topics of a cluster."""

    cluster: str


@header
class GetBrokerMemberGroupRequest(Header):
    """901: the members of a broker group."""

    cluster_name: str
    broker_name: str


@header
class NotifyMinBrokerIdChangeRequest(Header):
    """905, from the name server to a group's members. Java leaves out the name."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
