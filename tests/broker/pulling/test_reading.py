"""What a pull finds, beside a model that knows every message."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.pulling.reading import Found, ReadConfig, Status, read
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from remoting.hashing import java_hash
from remoting.record import Message, decode, decode_all, encode_properties
from tests.broker.store.small import delete_before

SMALL = StoreConfig(log_file_bytes=4096, queue_file_bytes=20 * 8, index=False)
CONFIG = ReadConfig()
TOPIC = b"t"


def stored(tags: Sequence[str], *, queues: int = 1, bodies: Sequence[int] = ()) -> MessageStore:
    """A message for each tag, over the queues in turn."""
    store = MessageStore(MemoryFiles(), SMALL)
    store.open()
    for number, tag in enumerate(tags):
        properties = encode_properties({"TAGS": tag} if tag else {})
        size = bodies[number] if bodies else 3
        store.writer.put(Message(TOPIC, b"%d" % number + b"." * size, number % queues, properties), 1_000 + number)
    store.log.write()
    store.visible.advance()
    return store


def numbers(found: Found) -> list[int]:
    return [int(record.message.body.rstrip(b".")) for record in decode_all(found.data)]


@pytest.mark.parametrize(("offset", "status", "next_offset"), [
    (-1, Status.OFFSET_TOO_SMALL, 0),
    (0, Status.FOUND, 3),
    (2, Status.FOUND, 3),
    (3, Status.OFFSET_OVERFLOW_ONE, 3),
    (4, Status.OFFSET_OVERFLOW_BADLY, 3),
])
def test_offsets_in_and_out_of_range(offset: int, status: Status, next_offset: int) -> None:
    store = stored(["a"] * 3)
    found = read(store.messages, TOPIC, 0, offset, config=CONFIG)
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (status, next_offset, 0, 3)
    if status is not Status.FOUND:
        asis = read(store.messages, TOPIC, 0, offset, config=CONFIG, correct=False)
        assert (asis.status, asis.next_offset) == (status, offset)


def test_a_queue_that_never_had_a_message() -> None:
    found = read(stored([]).messages, TOPIC, 0, 7, config=CONFIG)
    assert (found.status, found.next_offset, found.max_offset) == (Status.NO_MATCHED_LOGIC_QUEUE, 0, 0)
    assert read(stored([]).messages, TOPIC, 0, 7, config=CONFIG, correct=False).next_offset == 7


def test_what_was_deleted_is_below_the_least_offset() -> None:
    store = stored(["a"] * 100)
    least_kept = store.log.max_offset - 4096
    store.flush()
    delete_before(store, least_kept)
    least = store.messages.min_offset(TOPIC, 0)
    assert least > 0
    found = read(store.messages, TOPIC, 0, 0, config=CONFIG)
    assert (found.status, found.next_offset) == (Status.OFFSET_TOO_SMALL, least)
    assert numbers(read(store.messages, TOPIC, 0, least, config=CONFIG))[0] == least


def test_messages_far_behind_come_in_smaller_answers_and_say_how_far() -> None:
    store = stored(["a"] * 40)
    recent = read(store.messages, TOPIC, 0, 0, config=CONFIG)
    old = read(store.messages, TOPIC, 0, 0, config=CONFIG, memory=10)
    assert (recent.count, old.count) == (32, 8)
    assert old.behind > recent.behind > 10


def test_a_filter_looks_at_a_limited_part_of_the_queue() -> None:
    store = stored(["a"] * 50 + ["b"])
    config = attrs.evolve(CONFIG, max_filter_message_size=20 * 40)
    codes = frozenset({java_hash("b")})
    first = read(store.messages, TOPIC, 0, 0, codes=codes, config=config)
    assert (first.status, first.next_offset) == (Status.NO_MATCHED_MESSAGE, 40)
    second = read(store.messages, TOPIC, 0, 40, codes=codes, config=config)
    assert (second.status, second.next_offset, numbers(second)) == (Status.FOUND, 51, [50])


def test_the_first_message_comes_whatever_its_size() -> None:
    store = stored(["a", "a"], bodies=[1_500, 3])
    config = attrs.evolve(CONFIG, max_transfer_bytes_on_message_in_memory=100)
    for codes in (None, frozenset({java_hash("a")})):
        found = read(store.messages, TOPIC, 0, 0, codes=codes, count=0, bytes_max=10, config=config)
        assert (numbers(found), found.next_offset) == ([0], 1)


@given(
    messages=st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 600)), max_size=40),
    queues=st.integers(1, 4), count=st.integers(0, 40), limit=st.integers(1, 4_000),
    wanted=st.none() | st.frozensets(st.sampled_from(["a", "b"]), min_size=1),
)
def test_a_reader_gets_every_matching_message_once_in_order_and_within_the_limits(
    messages: list[tuple[str, int]], queues: int, count: int, limit: int, wanted: frozenset[str] | None,
) -> None:
    store = stored([tag for tag, _ in messages], queues=queues, bodies=[size for _, size in messages])
    codes = None if wanted is None else frozenset(map(java_hash, wanted))
    for queue_id in range(queues):
        mine = range(queue_id, len(messages), queues)
        got: list[int] = []
        at = 0
        while at < len(mine):
            found = read(store.messages, TOPIC, queue_id, at, codes=codes, count=count, bytes_max=limit, config=CONFIG)
            assert at < found.next_offset <= found.max_offset == len(mine)
            assert found.status in (Status.FOUND, Status.NO_MATCHED_MESSAGE)
            found_now = numbers(found)
            assert len(found_now) == found.count <= max(count, 1)
            assert found.count <= 1 or len(found.data) <= limit
            if found_now:
                first = decode(found.data)
                assert (first.message.topic, first.message.queue_id) == (TOPIC, queue_id)
            got += found_now
            at = found.next_offset
        assert got == [number for number in mine if wanted is None or messages[number][0] in wanted]
