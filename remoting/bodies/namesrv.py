"""Bodies of the name server's codes: registrations, routes, clusters, lists.

Fields are those of the Java classes; which code carries what stands at each class. ``RegisterBrokerBody`` alone has a
second, compressed form.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, ClassVar, Final, Self

import attrs

from remoting.body import Body, body
from remoting.errors import BodyError
from remoting.fastjson import dumps, loads
from remoting.fields import Int32, Int64, decimal, shown

REGISTRATION_BYTES_MAX: Final = 64 << 20
"""Largest registration after decompression. A hundred thousand topics take 20 MiB."""


AHEAD: Final = 1_000
"""More than a master's counter moves while a copy of its table lags."""


@body
class DataVersion(Body):
    """Which state of a table this is; 322 both ways. Brokers do not share a clock."""

    json_bytes_max: ClassVar[int] = 1 << 12
    state_version: Int64 = 0
    timestamp: Int64 = 0
    """Milliseconds of the wall clock of its maker."""
    counter: Int64 = 0

    def precedes(self, other: DataVersion) -> bool:
        """Return whether this version is the older one, as in Java's ``DataVersion.compare``.

        State decides, then counter, then time. Among tables of one master this is their age.
        """
        return ((self.state_version, self.counter, self.timestamp)
                < (other.state_version, other.counter, other.timestamp))

    def ahead(self, wall_ms: int) -> DataVersion:
        """The version of an acting slave's table for its master. RocketMQ's takes no table of an older version than its
        own, which moves only after hundreds of changes, and begins anew when the master starts without a file."""
        return DataVersion(self.state_version, wall_ms, self.counter + AHEAD)


@body
class TopicConfig(Body):
    """One topic on one broker. ``perm`` has bits 4 to read, 2 to write, 1 to be inherited."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = attrs.field(factory=dict)

    def to_line(self) -> str:
        """The compressed registration's form: order and flags are not in it, nor may a space be in any part."""
        parts = [
            self.topic_name, str(self.read_queue_nums), str(self.write_queue_nums), str(self.perm),
            self.topic_filter_type, dumps(self.attributes).decode(),
        ]
        if any(" " in part for part in parts):
            raise BodyError(f"topic {shown(self.topic_name)}: its name and attributes must have no space")
        return " ".join(parts)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Raises ``BodyError``. Brokers before 5.0 send no attributes."""
        name, *rest = line.split(" ")
        numbers = [decimal(part) for part in rest[:3]]
        if len(rest) not in (4, 5) or None in numbers or not name:
            raise BodyError(f"registration: {shown(line)} is no topic: name, three numbers, filter type")
        keys = ("readQueueNums", "writeQueueNums", "perm")
        return cls.from_plain({
            "topicName": name, **dict(zip(keys, numbers, strict=True)), "topicFilterType": rest[3],
            "attributes": loads(rest[4].encode()) if len(rest) == 5 else {},
        })


@body
class TopicQueueMappingInfo(Body):
    """Static topics: which physical queue of this broker stands for which logical one."""

    topic: str | None = None
    scope: str = "__global__"
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = attrs.field(factory=dict)


@body
class TopicConfigSerializeWrapper(Body):
    """Topics of one broker with their version: in 103, and the answer to 21.

    As of ``TopicConfigAndMappingSerializeWrapper``; brokers before 5.0 know the first two fields only.
    """

    topic_config_table: dict[str, TopicConfig] = attrs.field(factory=dict)
    data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = attrs.field(factory=dict)
    topic_queue_mapping_detail_map: dict[str, Any] = attrs.field(factory=dict)
    mapping_data_version: DataVersion = DataVersion()


@body
class RegisterBrokerBody(Body):
    """A broker's topics, sent with its registration (103)."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper()
    filter_server_list: list[str] = attrs.field(factory=list)

    def encode(self, *, compressed: bool = False) -> bytes:
        """JSON, or the compressed form: raises ``BodyError`` where that has no place for a topic."""
        if not compressed:
            return self.to_json()
        wrapper = self.topic_config_serialize_wrapper
        topics = [topic.to_line().encode() for topic in wrapper.topic_config_table.values()]
        mappings = [info.to_json() for info in wrapper.topic_queue_mapping_info_map.values()]
        blocks: list[bytes | int] = [
            wrapper.data_version.to_json(), len(topics), *topics, dumps(self.filter_server_list),
            len(mappings), *mappings,
        ]
        packed = b"".join(
            _INT.pack(block) if isinstance(block, int) else _INT.pack(len(block)) + block for block in blocks
        )
        return zlib.compress(packed, 9)

    @classmethod
    def decode(cls, data: bytes, *, compressed: bool = False, bytes_max: int = REGISTRATION_BYTES_MAX) -> Self:
        """Raises ``BodyError``, also when it would decompress to more than ``bytes_max``."""
        if not compressed:
            return cls.from_json(data)
        blocks = _Blocks(_decompressed(data, bytes_max))
        version = DataVersion.from_json(blocks.block())
        topics: dict[str, TopicConfig] = {}
        for _ in range(blocks.number()):
            topic = TopicConfig.from_line(blocks.text())
            topics[topic.topic_name] = topic
        filters = cls.from_plain({"filterServerList": loads(blocks.block())}).filter_server_list
        mappings: dict[str, TopicQueueMappingInfo] = {}
        for _ in range(blocks.number() if blocks.left else 0):  # brokers before 5.0 send no mappings
            mapping = TopicQueueMappingInfo.from_json(blocks.block())
            mappings[mapping.topic or ""] = mapping
        return cls(TopicConfigSerializeWrapper(topics, version, mappings), filters)


_INT: Final = struct.Struct(">i")


def _decompressed(data: bytes, bytes_max: int) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        packed = unpacking.decompress(data, bytes_max)
    except zlib.error as error:
        raise BodyError(f"registration cannot be decompressed: {error}") from None
    if not unpacking.eof:
        reason = f"it makes more than {bytes_max} bytes" if unpacking.unconsumed_tail else "it ends too early"
        raise BodyError(f"registration cannot be decompressed: {reason}")
    return packed


class _Blocks:
    """Numbers and blocks with their lengths before them."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._packed) - self._at

    def number(self) -> int:
        if self.left < 4:
            raise BodyError("registration ends where a number is needed")
        (number,) = _INT.unpack_from(self._packed, self._at)
        self._at += 4
        return int(number)

    def block(self) -> bytes:
        size = self.number()
        if not 0 <= size <= self.left:
            raise BodyError(f"registration has a block of {size} bytes where {self.left} are left")
        self._at += size
        return self._packed[self._at - size : self._at]

    def text(self) -> str:
        try:
            return self.block().decode()
        except UnicodeDecodeError:
            raise BodyError("registration has a topic that is not UTF-8") from None


# --- routes and clusters -------------------------------------------------------------------------------------


@body
class QueueData(Body):
    """One topic's queues on one broker group."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


@body
class BrokerData(Body):
    """One broker group: addresses by broker id, 0 for the master."""

    broker_name: str
    cluster: str | None = None
    broker_addrs: dict[Int64, str] = attrs.field(factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None


@body
class TopicRouteData(Body):
    """Answer to 105 and body of 217. Clients from version 401 on want ``to_json(ascii_only=True)``."""

    queue_datas: list[QueueData] = attrs.field(factory=list)
    broker_datas: list[BrokerData] = attrs.field(factory=list)
    filter_server_table: dict[str, list[str]] = attrs.field(factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


@body
class ClusterInfo(Body):
    """Answer to 106: groups by name, names by cluster."""

    broker_addr_table: dict[str, BrokerData] = attrs.field(factory=dict)
    cluster_addr_table: dict[str, list[str]] = attrs.field(factory=dict)


@body
class KVTable(Body):
    """Answer to 103, 219 and a broker's 28."""

    table: dict[str, str] = attrs.field(factory=dict)


@body
class TopicList(Body):
    """Answer to 206, 224, 304 and 311-313; with an address only in 304."""

    topic_list: list[str] = attrs.field(factory=list)
    broker_addr: str | None = None
