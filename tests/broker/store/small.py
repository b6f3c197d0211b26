"""A small store, its messages, and what consumers see of it. Its files end soon, so little fills many."""

from __future__ import annotations

from broker.store.files import Files
from broker.store.store import MessageStore, StoreConfig
from remoting.record import Message, decode, encode_properties

SMALL = StoreConfig(log_file_bytes=2048, queue_file_bytes=20 * 8, index_slots=11, index_entries=64)


def opened(files: Files) -> MessageStore:
    store = MessageStore(files, SMALL)
    store.open()
    return store


def message(topic: str, queue_id: int, body: str, sys_flag: int = 0) -> Message:
    return Message(topic.encode(), body.encode(), queue_id, encode_properties({"TAGS": "TagA"}), sys_flag=sys_flag)


def seen(store: MessageStore, topic: str = "t", queue_id: int = 0) -> list[str]:
    key = topic.encode(), queue_id
    at, bodies = store.messages.min_offset(*key), []
    while found := store.messages.get(*key, at, count=5):
        for raw in found:
            record = decode(raw)
            assert (record.message.topic, record.message.queue_id, record.queue_offset) == (*key, at)
            bodies.append(record.message.body.decode())
            at += 1
    assert at == store.messages.max_offset(*key)
    return bodies


def delete_before(store: MessageStore, offset: int) -> None:
    """What is old goes, all steps of it at once."""
    for _ in store.cleaner.release_before(offset):
        pass
    assert not store.cleaner.clean(), "of all queues none waits"
