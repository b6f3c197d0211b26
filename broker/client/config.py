"""The settings that a user may tune, validated: frozen values with RocketMQ's defaults where it has them.

Milliseconds and bytes, as names say. Knows numbers only. Source: ``ClientConfig``, ``DefaultMQProducer`` and
``DefaultMQPushConsumer`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import attrs

from broker.client.faults import Sparing
from broker.client.inflight import FlowLimits
from remoting.allocation import Allocate, averagely
from remoting.compression import Compression

CONSUME_ORDERLY_MAX: Final = 2**31 - 1


def _positive(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or value <= 0:
        raise ValueError(f"{attribute.name} = {value!r}: must be a whole number above 0")


def _least(least: int) -> Any:
    def check(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if type(value) is not int or value < least:
            raise ValueError(f"{attribute.name} = {value!r}: must be a whole number, {least} or more")

    return check


def _limit(default: int, least: int | None = None) -> Any:
    return attrs.field(default=default, validator=_positive if least is None else _least(least))


@attrs.frozen(kw_only=True)
class ClientSettings:
    """Settings of a client and of its sends. Raises ``ValueError`` naming the field and the rule."""

    send_timeout_ms: int = _limit(3_000)
    """Time-out of a send with all its attempts, unless the call says otherwise."""
    retries: int = _limit(2, 0)
    """Further attempts after one whose outcome is unknown, or that a broker refused where another may not. An attempt
    that certainly stored nothing because a broker is away is repeated until the deadline, and not counted."""
    resend_unknown: bool = True
    """Send again when the outcome is unknown. As in Java: the message may then be stored twice, with one
    ``message_id``. Without it such a send ends in ``SendUnknown``."""
    sparing: Sparing = Sparing()
    """Rules for sparing brokers that have failed or been slow: which, and how long."""
    compress_from_bytes: int = _limit(4_096, 0)
    """Bodies above it are compressed."""
    compression: Compression = Compression.ZLIB
    compression_level: int = 5
    message_bytes_max: int = _limit(4 << 20)
    """Largest body of a message before it is compressed."""
    batch_bytes_max: int = _limit(1 << 20)
    """A batch that is larger goes in several requests."""
    expanded_bytes_max: int = _limit(64 << 20)
    """Largest body of a received message after it was expanded."""
    in_flight_bytes_max: int = _limit(32 << 20)
    """Bodies of sends that wait for their answer; further sends wait their turn."""
    default_topic: str = "TBW102"
    """The template of topics that are made when something is first sent to them."""
    default_topic_queues: int = _limit(4)
    route_poll_ms: int = _limit(30_000)
    heartbeat_ms: int = _limit(30_000)
    route_timeout_ms: int = _limit(3_000)
    """Time-out of one question to one name server."""
    route_pause_min_ms: int = _limit(2)
    route_pause_max_ms: int = _limit(50)
    """Between questions for a route that is needed and not right yet; the pause doubles from the least to the most."""
    connect_patience_ms: int = _limit(200)
    """A send that waits so long for a connection asks for the route again meanwhile."""
    answer_patience_ms: int = _limit(500)
    """While a send waits for its answer longer, the route is asked for; once another is master, the send goes there."""

    def __attrs_post_init__(self) -> None:
        if self.route_pause_max_ms < self.route_pause_min_ms:
            raise ValueError(f"route_pause_max_ms = {self.route_pause_max_ms}: must be at least route_pause_min_ms = "
                             f"{self.route_pause_min_ms}")


@attrs.frozen(kw_only=True)
class ConsumerSettings:
    """Settings of one consumer. Raises ``ValueError`` naming the field and the rule."""

    pull_batch: int = _limit(32)
    """Messages that one pull asks for; brokers give 32 at most by default."""
    suspend_ms: int = _limit(15_000)
    """Time that a broker may hold a pull that finds nothing."""
    pull_timeout_ms: int = _limit(30_000)
    """Time-out of a pull, ``suspend_ms`` included."""
    flow: FlowLimits = FlowLimits()
    reconsume_times_max: int = _limit(-1, -1)
    """Beyond it a message goes to the dead letters. −1: 16, and without end in an ordered subscription."""
    ordered_pause_ms: int = _limit(1_000)
    """Before a message that was given back is delivered again, in an ordered subscription or a broadcast."""
    consume_timeout_ms: int = _limit(15 * 60_000)
    """A message that is neither acknowledged nor given back for so long is given back for you."""
    commit_ms: int = _limit(5_000)
    """Interval at which positions are told to the brokers, or written to the file of a broadcast."""
    rebalance_ms: int = _limit(20_000)
    """Interval at which the queues are shared out anew when nothing asks for it."""
    member_grace_ms: int = _limit(2_000)
    """A member of the group that a broker no longer knows is waited for so long before others take its queues."""
    lock_ms: int = _limit(20_000)
    """Interval at which the locks of an ordered subscription are renewed."""
    lock_lives_ms: int = _limit(30_000)
    """A lock that was not renewed for so long is not relied on."""
    retry_pause_ms: int = _limit(200)
    """After a pull that failed."""
    pop_unsettled: int = _limit(96)
    """Messages of one broker that are popped and not settled, above which no more are popped."""
    close_timeout_ms: int = _limit(3_000)
    """For committing, unlocking and saying goodbye at the end."""
    allocate: Allocate = averagely
    """All members of a group need the same."""
    offsets_dir: Path = attrs.field(factory=lambda: Path.home() / ".rocketmq_offsets")
    """Folder where a broadcast keeps its positions: they belong to this machine, not to the group."""

    def __attrs_post_init__(self) -> None:
        if self.suspend_ms >= self.pull_timeout_ms:
            raise ValueError(f"pull_timeout_ms = {self.pull_timeout_ms}: must be above suspend_ms = {self.suspend_ms}")
