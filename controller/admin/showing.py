"""Formats what several commands print as the original does: configurations, queues, messages. Pure words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.admin.finding import in_java
from controller.admin.stored import Stored
from remoting.address import join_address
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import TopicConfig
from remoting.record import unpacked_host


def settings(values: Mapping[str, str]) -> list[str]:
    """A configuration, one key on each line."""
    return [f"{key:<50}=  {value}" for key, value in values.items()]


def listed(values: Iterable[object]) -> str:
    """Format a list or a set as Java shows it."""
    return f"[{', '.join(map(str, values))}]"


def perm_words(perm: int) -> str:
    """``RW-`` and such, of the bits of a permission."""
    return "".join(word if perm & bit else "-" for bit, word in ((4, "R"), (2, "W"), (1, "X")))


def topic_words(topic: TopicConfig) -> str:
    """Format a topic as ``TopicConfig.toString`` of Java does."""
    return (f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
            f"writeQueueNums={topic.write_queue_nums}, perm={perm_words(topic.perm)}, "
            f"topicFilterType={topic.topic_filter_type}, topicSysFlag={topic.topic_sys_flag}, "
            f"order={in_java(topic.order)}, attributes={in_java(topic.attributes)}]")


def queue_words(queue: MessageQueue) -> str:
    """Format a queue as ``MessageQueue.toString`` of Java does."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def message_words(stored: Stored, broker: str) -> str:
    """A whole message, its body as bytes."""
    record, message = stored.record, stored.record.message
    fields = {
        "brokerName": broker, "queueId": message.queue_id, "storeSize": record.size,
        "queueOffset": record.queue_offset, "sysFlag": message.sys_flag, "bornTimestamp": message.born_time_ms,
        "bornHost": f"/{join_address(*unpacked_host(message.born_host))}", "storeTimestamp": record.store_time_ms,
        "storeHost": f"/{stored.store_host}", "msgId": record.message_id, "commitLogOffset": record.offset,
        "bodyCRC": record.body_crc, "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_offset}
    body = listed(byte - 256 if byte > 127 else byte for byte in stored.body)
    transaction = stored.properties.get("UNIQ_KEY") if stored.properties.get("TRAN_MSG") == "true" else None
    whole = (f"Message{{topic='{stored.topic}', flag={message.flag}, properties={in_java(stored.properties)}, "
             f"body={body}, transactionId='{in_java(transaction)}'}}")
    return f"MessageExt [{', '.join(f'{key}={value}' for key, value in fields.items())}, toString()={whole}]"
