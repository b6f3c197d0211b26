"""Tables in ``config/*.json`` of a store: topics, groups, consumer and delay offsets, read as Java wrote them.

Each is written whole, the former one stays as ``.bak`` and is read where the new one is no JSON. What Java writes with
bare numeric keys is written with quoted ones, which Java reads as well. It knows the files; who changes the tables is
other modules' business. Source: ``ConfigManager`` and its subclasses of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import attrs

from broker.store.errors import WrongStore
from broker.store.files import Files, read_whole, write_whole
from remoting.bodies.consumers import MessageRequestModes
from remoting.bodies.namesrv import DataVersion, TopicConfig
from remoting.body import Body, body
from remoting.errors import BodyError
from remoting.fields import Int32, Int64, wire_name


@body
class Topics(Body):
    """The content of ``topics.json``: all topics."""

    topic_config_table: dict[str, TopicConfig] = attrs.field(factory=dict)
    data_version: DataVersion = DataVersion()


@body
class SubscriptionGroup(Body):
    """One consumer group. ``retry_max_times`` sends a message to the dead letters; minutes as named."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: dict[str, Any] = attrs.field(factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[Any] | None = None
    attributes: dict[str, str] = attrs.field(factory=dict)


@body
class SubscriptionGroups(Body):
    """``subscriptionGroup.json``. ``forbidden_table``: by group and topic, the bits of what is forbidden."""

    subscription_group_table: dict[str, SubscriptionGroup] = attrs.field(factory=dict)
    forbidden_table: dict[str, dict[str, Int32]] = attrs.field(factory=dict)
    data_version: DataVersion = DataVersion()


@body
class ConsumerOffsets(Body):
    """``consumerOffset.json``: by ``topic@group`` and queue id."""

    offset_table: dict[str, dict[Int32, Int64]] = attrs.field(factory=dict)
    pull_offset_table: dict[str, dict[Int32, Int64]] = attrs.field(factory=dict)
    group_topic_map: dict[str, list[str]] = attrs.field(factory=dict)
    data_version: DataVersion = DataVersion()
    reset_table: dict[str, dict[Int32, Int64]] | None = wire_name("__QUORATE_RESETS", default=None)
    """Ours: resets that perhaps no pull has seen; None: there is none. Java passes over it."""
    true_version: DataVersion | None = wire_name("__QUORATE_VERSION", default=None)
    """Ours, in an acting slave's answer to 43: the table's version, where ``data_version`` is ahead of it."""


@body
class DelayOffsets(Body):
    """``delayOffset.json``: by delay level, from 1."""

    offset_table: dict[Int32, Int64] = attrs.field(factory=dict)
    data_version: DataVersion = DataVersion()


FOLDER: Final = "config"
PATHS: Final[dict[type[Body], str]] = {
    Topics: f"{FOLDER}/topics.json",
    SubscriptionGroups: f"{FOLDER}/subscriptionGroup.json",
    ConsumerOffsets: f"{FOLDER}/consumerOffset.json",
    DelayOffsets: f"{FOLDER}/delayOffset.json",
    MessageRequestModes: f"{FOLDER}/messageRequestMode.json",
}
_Table = TypeVar("_Table", bound=Body)


def load(files: Files, table: type[_Table], path: str = "") -> _Table:
    """The table on disk, or an empty one if there is none. ``path``: of one that is not in ``PATHS``.

    Raises:
        WrongStore: neither the file nor the one before it can be read.
    """
    path = path or PATHS[table]
    wrong: BodyError | None = None
    for name in (path, f"{path}.bak"):
        raw = read_whole(files, name)
        if raw and raw.strip():  # Java leaves an empty .bak beside the first file
            try:
                return table.from_json(raw)
            except BodyError as error:
                wrong = wrong or error
    if wrong is not None:
        raise WrongStore(f"{path} cannot be read, nor its .bak: {wrong}; repair it or put an older copy there")
    return table()


def save(files: Files, table: Body) -> None:
    """Replace the table on disk. Raises ``OSError``."""
    write_whole(files, PATHS[type(table)], table.to_json())
