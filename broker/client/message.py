"""Messages as a user writes and reads them, and what the wire carries of them.

It knows properties and records; nothing of connections. Source: ``Message``, ``MessageExt``, ``MessageConst`` and
``Validators`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from broker.client.errors import CompressionMissing, MessageIllegal
from remoting import record as codec
from remoting.bodies.consumers import MessageQueue
from remoting.compression import Compression, compress, expand, flag_of
from remoting.errors import CompressionMissing as LibraryMissing
from remoting.errors import MessageIllegal as NotEncodable
from remoting.record import Record, unpacked_host

if TYPE_CHECKING:
    import datetime as dt

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
DELAY_MS: Final = "TIMER_DELAY_MS"
DELIVER_AT_MS: Final = "TIMER_DELIVER_MS"
TRANSACTIONAL: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
IMMUNE_S: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
UNIQUE_ID: Final = "UNIQ_KEY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
RECONSUME_TIMES: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTERS_PREFIX: Final = "%DLQ%"

RESERVED: Final = frozenset((
    "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET",
    "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
    "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
    "INNER_NUM", "INNER_BASE", "DUP_INFO", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET",
    "__transactionId__", "TRANSACTION_CHECK_TIMES", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL",
    "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "POP_CK", "1ST_POP_TIME", "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "__SHARDINGKEY", "__CRC32#", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP",
    "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "__LITE_TOPIC",
    "_SYS_MSG_PRIORITY_", "TRANS_OFFSET", "TIMER_ROLL_LABEL", "ORIGIN_GROUP",
))
"""Property names with a meaning of their own."""

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_TOPIC_MAX, _GROUP_MAX = 127, 120
_INT32: Final = 1 << 31
NO_PROPERTIES: Final[Mapping[str, str]] = {}


@lru_cache(1_024)  # errors are not cached
def check_topic(topic: str) -> None:
    """Check a topic's name. Raises ``MessageIllegal``."""
    long = len(topic) > _TOPIC_MAX and not topic.startswith((RETRY_PREFIX, DEAD_LETTERS_PREFIX))
    if long or not _NAME.fullmatch(topic):
        raise MessageIllegal(f"topic {topic[:140]!r}: 1 to {_TOPIC_MAX} of letters, digits, % | - _ are allowed")


def check_group(group: str) -> None:
    """Check a group's name. Raises ``ValueError``."""
    if not _NAME.fullmatch(group) or len(group) > _GROUP_MAX:
        raise ValueError(f"group {group[:140]!r}: 1 to {_GROUP_MAX} of letters, digits, % | - _ are allowed")


# --- to send -------------------------------------------------------------------------------------------------


@attrs.frozen
class Message:
    """A message to send. ``body`` is opaque and has one byte at least.

    ``keys`` find it again (``query``), ``tag`` lets consumers choose. ``flag`` is the user's own number.
    ``wait_stored=False``: the broker need not wait for its replicas.

    Delivered at once, or, by one of three: ``delay``, so long after the broker has it, by the broker's clock;
    ``deliver_at``, a moment with its time zone; ``delay_level``, 1 to 18 for 1 s to 2 h.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = NO_PROPERTIES
    delay_level: int = 0
    flag: int = 0
    wait_stored: bool = True
    delay: dt.timedelta | None = None
    deliver_at: dt.datetime | None = None

    @property
    def delayed(self) -> bool:
        """Return whether the message is to wait at the broker. A wait of no time counts as none."""
        return bool(self.delay_level) or self.delay is not None or self.deliver_at is not None


@attrs.frozen
class Sent:
    """Place of a stored message. ``message_id`` is the client's; ``offset_message_id`` names the broker and its log.

    Of a message that waits for its time the place is the one where it waits, and ``recall_handle`` takes it back.
    """

    message_id: str
    queue: MessageQueue
    queue_offset: int
    offset_message_id: str
    recall_handle: str | None = None


@attrs.frozen
class Encoded:
    """The encoded parts of a message that are the same for every queue."""

    message_id: str
    body: bytes
    sys_flag: int
    properties: str
    born_time_ms: int


def check_types(message: Message) -> None:
    """Check the types of a message's parts: others would fail somewhere inside, or be sent as Python's text of them.

    What properties hold is looked at where they are read. Raises ``MessageIllegal``."""
    if not isinstance(message, Message):
        raise MessageIllegal(f"{_shown(message)} is no Message")
    keys: object = message.keys
    properties: object = message.properties
    _expect(message, "topic", str)
    if message.tag is not None:
        _expect(message, "tag", str)
    _expect(message, "flag", int)
    _expect(message, "delay_level", int)
    if isinstance(keys, str) or not isinstance(keys, Collection) or any(not isinstance(key, str) for key in keys):
        raise MessageIllegal(f"keys are {_shown(keys)}; a list of strings is needed")
    if not isinstance(properties, Mapping):
        raise MessageIllegal(f"properties are {_shown(properties)}; a mapping of strings is needed")


def _expect(message: Message, name: str, kind: type) -> None:
    value = getattr(message, name)
    if not isinstance(value, kind):
        raise MessageIllegal(f"{name} is {_shown(value)}; {kind.__name__} is needed")


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r:.40}"


def properties_of(message: Message, message_id: str, further: Mapping[str, str] = NO_PROPERTIES) -> str:
    """All properties in one string, ``further`` reserved ones among them. Raises ``MessageIllegal``."""
    check_types(message)
    check_topic(message.topic)
    values = {UNIQUE_ID: message_id, WAIT: "true" if message.wait_stored else "false"}
    if message.tag is not None:
        if not message.tag or message.tag.strip() != message.tag or "||" in message.tag:
            raise MessageIllegal(f"tag {message.tag!r}: no subscription could name it")
        values[TAGS] = message.tag
    if message.keys:
        values[KEYS] = " ".join(message.keys)
        if len(values[KEYS].split()) != len(message.keys):
            raise MessageIllegal(f"keys {list(message.keys)!r}: none may be empty or hold a blank, their separator")
    if not -_INT32 <= message.flag < _INT32:
        raise MessageIllegal(f"flag {message.flag}: it has 32 bits")
    if message.delayed:
        try:
            values |= delay_of(message)
        except (AttributeError, TypeError):
            raise MessageIllegal(f"delay {message.delay!r:.40}, deliver_at {message.deliver_at!r:.40}: "
                                 "a timedelta, or a datetime, is needed") from None
    taken: list[str] = []
    pairs: Iterable[tuple[object, object]] = message.properties.items()
    for key, value in pairs:
        if not isinstance(key, str) or not isinstance(value, str):
            raise MessageIllegal(f"property {_shown(key)} is {_shown(value)}; names and values are strings")
        if key in RESERVED:
            taken.append(key)
        values[key] = value
    if taken:
        raise MessageIllegal(f"property {min(taken)!r} has a meaning of its own; choose another name")
    values |= further
    try:
        return codec.encode_properties(values).decode()
    except NotEncodable as error:
        raise MessageIllegal(str(error)) from None


def delay_of(message: Message) -> dict[str, str]:
    """The property that says how long it waits. Raises ``MessageIllegal``."""
    level, delay, moment = message.delay_level, message.delay, message.deliver_at
    if bool(level) + (delay is not None) + (moment is not None) > 1:
        raise MessageIllegal("delay_level, delay and deliver_at say when it is delivered; give one of them")
    if delay is not None:
        if delay.days < 0:
            raise MessageIllegal(f"delay {delay}: it is below 0")
        return {DELAY_MS: str((delay.days * 86_400 + delay.seconds) * 1_000 - -delay.microseconds // 1_000)}
    if moment is not None:
        if moment.utcoffset() is None:
            raise MessageIllegal(f"deliver_at {moment}: it has no time zone, so nobody knows which moment it is")
        return {DELIVER_AT_MS: str(int(moment.timestamp() * 1e3))}
    if level < 0:
        raise MessageIllegal(f"delay_level {level}: 1 to 18, or 0 for none")
    return {DELAY: str(level)}


def encode(
    message: Message, message_id: str, now_ms: int, *, compress_from: int, compression: Compression, level: int,
    body_bytes_max: int, further: Mapping[str, str] = NO_PROPERTIES,
) -> Encoded:
    """Encode a message's body. Bodies above ``compress_from`` bytes are compressed, if that makes them smaller.

    Raises ``MessageIllegal``, ``CompressionMissing``."""
    properties, body, sys_flag = properties_of(message, message_id, further), message.body, 0
    if not isinstance(body, bytes | bytearray | memoryview):
        raise MessageIllegal(f"body is {type(body).__name__}; bytes are needed")
    if not body:
        raise MessageIllegal("body is empty; brokers refuse such a message")
    if len(body) > body_bytes_max:
        raise MessageIllegal(f"body of {len(body)} bytes; {body_bytes_max} are allowed")
    if len(body) > compress_from:
        try:
            smaller = compress(body, compression, level)
        except LibraryMissing as missing:
            raise CompressionMissing(str(missing), missing.library) from None
        if len(smaller) < len(body):  # else a body near the limit would be above it
            body, sys_flag = smaller, flag_of(compression)
    return Encoded(message_id, body, sys_flag, properties, now_ms)


# --- received ------------------------------------------------------------------------------------------------


class Origin(Protocol):
    """The consumer that a message came from, which learns whether it was settled."""

    @property
    def dropped(self) -> bool:
        """The messages of that queue are no longer this client's."""

    def acknowledged(self, message: Received) -> None: ...
    async def later(self, message: Received, level: int) -> None: ...


class MessageView:
    """A message from a broker. Properties, and bodies that are compressed, are decoded when they are asked for."""

    __slots__ = ("_body", "_body_bytes_max", "_properties", "queue", "reconsume_times", "record")

    def __init__(self, record: Record, queue: MessageQueue, body_bytes_max: int) -> None:
        self.record = record
        """All that the broker keeps of it."""
        self.queue = queue
        """Queue where it was read. A repeated delivery has a queue of the group's retry topic."""
        self.reconsume_times = record.message.reconsume_times
        """Number of times that it was given back before."""
        self._body_bytes_max = body_bytes_max
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None

    @property
    def properties(self) -> dict[str, str]:
        if self._properties is None:
            self._properties = codec.decode_properties(self.record.message.properties)
        return self._properties

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also when this is a repeated delivery."""
        topic = self.queue.topic
        return self.properties.get(RETRY_TOPIC, topic) if topic.startswith(RETRY_PREFIX) else topic

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises ``CompressionMissing`` and, for one that cannot be expanded,
        ``MessageIllegal``."""
        if self._body is None:
            message = self.record.message
            try:
                self._body = expand(message.body, message.sys_flag, self._body_bytes_max)
            except LibraryMissing as missing:
                raise CompressionMissing(str(missing), missing.library) from None
            except NotEncodable as error:
                raise MessageIllegal(str(error)) from None
        return self._body

    @property
    def tag(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(KEYS, "").split()

    @property
    def message_id(self) -> str:
        """The sender's, the same for each copy and each delivery; the broker's where the sender gave none."""
        return self.properties.get(UNIQUE_ID) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        return self.record.message_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def flag(self) -> int:
        return self.record.message.flag

    @property
    def born_time_ms(self) -> int:
        """Wall clock of the sender."""
        return self.record.message.born_time_ms

    @property
    def store_time_ms(self) -> int:
        """Wall clock of the broker."""
        return self.record.store_time_ms

    @property
    def born_host(self) -> tuple[str, int]:
        return unpacked_host(self.record.message.born_host)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.message_id} of {self.queue} at {self.queue_offset}>"


class Received(MessageView):
    """A message from a broker. ``ack`` or ``retry_later`` says what became of it, once; the first word counts."""

    __slots__ = ("_origin", "_settled", "taken_at")

    def __init__(self, record: Record, queue: MessageQueue, body_bytes_max: int, origin: Origin | None = None) -> None:
        super().__init__(record, queue, body_bytes_max)
        self.taken_at: float | None = None
        """Time of its delivery, by trio's clock."""
        self._settled = False
        self._origin = origin

    @property
    def settled(self) -> bool:
        """Return whether it was acknowledged or given back, or its queue went to another consumer."""
        return self._settled or (self._origin is not None and self._origin.dropped)

    def again(self) -> Received:
        """Return the same message for another delivery by this client."""
        copy = Received(self.record, self.queue, self._body_bytes_max, self._origin)
        copy.reconsume_times = self.reconsume_times + 1
        return copy

    def answered_by(self, way: Callable[[Origin], Origin]) -> None:
        """Tell what becomes of it by another way, as clients on other loops need."""
        if self._origin is not None:
            self._origin = way(self._origin)

    def ack(self) -> None:
        """Acknowledge the message: it is not delivered to this group again. Sends nothing: positions are committed in
        turn."""
        if not self.settled:
            self._settled = True
            if self._origin is not None:
                self._origin.acknowledged(self)

    async def retry_later(self, level: int = 0) -> None:
        """Let the group have it again, after a while that grows with each time: the broker does that, or, in an ordered
        or a broadcast subscription, this client. ``level`` is a delay level of the broker's, 1 to 18; below 0: straight
        to the dead letters. After ``reconsume_times_max`` it goes to the dead letters, ``%DLQ%group``.

        Raises nothing when the broker cannot be reached: then this client delivers it again itself.
        """
        if not self.settled:
            self._settled = True
            if self._origin is not None:
                await self._origin.later(self, level)
