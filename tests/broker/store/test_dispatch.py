"""Runs of records are read as single ones are, tags and keys hashed as Java hashes them, queues told alike."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.commitlog import CommitLog
from broker.store.consumequeue import GATHERED, ConsumeQueue
from broker.store.dispatch import DELAYS_MS, SCHEDULE_TOPIC, TagCodes, in_queue
from broker.store.errors import WrongStore
from broker.store.files import MemoryFiles
from broker.store.keys import KeyHashes, key_hash, keys_of
from remoting.hashing import java_hash
from remoting.record import (
    COMMIT,
    PREPARED,
    ROLLBACK,
    Message,
    encode,
    encode_properties,
    outline,
    outlines,
    packed_host,
)

V4, V6 = packed_host("127.0.0.1", 10911), packed_host("::1", 10911)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "MYTAGS", "DELAY", "x"])
PROPERTIES = st.dictionaries(NAMES, st.text(st.characters(exclude_characters="\1\2", exclude_categories=["Cs"]),
                                            max_size=50), max_size=6).map(encode_properties)
MESSAGES = st.builds(
    Message, st.sampled_from([b"t", b"Orders", b"x" * 127, b"y" * 128, "größe".encode()]), st.binary(max_size=300),
    st.integers(0, 3), PROPERTIES, sys_flag=st.sampled_from([0, 0, PREPARED, COMMIT, ROLLBACK]),
    born_host=st.sampled_from([V4, V4, V6]), store_host=st.sampled_from([V4, V4, V6]))


@given(st.lists(MESSAGES, max_size=12), st.integers(0, 5000), st.integers(0, 1 << 40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_run_is_what_its_records_are_one_by_one(
    messages: list[Message], cut: int, base: int, check_crc: bool,
) -> None:
    data, at = b"", []
    for number, message in enumerate(messages):
        at.append(len(data))
        data += encode(message, number, base + len(data), 1_000 + number)
    found, end = outlines(data, base, check_crc=check_crc)
    assert (found, end) == ([outline(data, where) for where in at], len(data))
    part = data[: min(cut, len(data))]
    ends = [*at[1:], len(data)]
    whole = [where for where, after in zip(at, ends, strict=False) if after <= len(part)]
    found, end = outlines(part, base)
    assert found == [outline(data, where) for where in whole]
    assert end == (at[len(whole)] if len(whole) < len(at) else len(data))
    assert outlines(data, base, most=2)[0] == [outline(data, where) for where in at[:2]]


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_damage_ends_a_run_in_front_of_it(where: int, value: int) -> None:
    data = b""
    for number in range(3):
        data += encode(Message(b"Orders", b"body", 1, b"TAGS\1a\2"), number, len(data), 5)
    size = len(data) // 3
    where %= len(data)
    damaged = data[:where] + bytes([value]) + data[where + 1 :]
    found, end = outlines(damaged, 0, check_crc=True)
    assert end == size * len(found)
    assert len(found) >= where // size, "what is in front of it is read"
    for number, each in enumerate(found):
        assert (each[0], each[1]) == (size * number, size)


@given(MESSAGES)
@settings(max_examples=500, deadline=None)
def test_keys_are_hashed_as_the_words_say(message: Message) -> None:
    found = outline(encode(message, 0, 0, 0))
    hashes = KeyHashes()
    for _ in range(2):
        assert hashes.of([found]) == [(key_hash(key), found[0], found[5]) for key in keys_of(found)]


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters=" "), min_size=1, max_size=60))
def test_any_ascii_key(key: str) -> None:
    found = (0, 1, 0, 0, 0, 0, b"topic", b"KEYS\1" + key.encode() + b"\2")
    assert KeyHashes().of([found]) == [(key_hash(f"topic#{key}"), found[0], found[5])]


@given(st.lists(st.text("ab7F\x7f", max_size=40), min_size=1, max_size=9))
def test_unique_ids_of_a_run_share_what_they_begin_with(ids: list[str]) -> None:
    run = [(at, 1, 0, 0, 0, 7, b"%d" % (at // 2 % 2), b"UNIQ_KEY\1" + unique.encode() + b"\2")
           for at, unique in enumerate(again for one in ids for again in (one, one, f"{one}a", f"{one}b"))]
    expected = [(key_hash(key), found[0], 7) for found in run for key in keys_of(found)]
    assert KeyHashes().of(run) == expected


def test_codes_of_tags_and_of_delays() -> None:
    codes = TagCodes()
    for properties, code in ((b"", 0), (b"TAGS\1TagA\2", 2598919), (b"a\1b\2TAGS\1TagA", 2598919),
                             (b"MYTAGS\1TagA\2", 0), (b"MYTAGS\1x\2TAGS\1TagA\2", 2598919),
                             (b"x\1TAGS\2", 0), (b"TAGS\1\2", 0)):
        assert codes.code(b"t", properties, 5) == code, properties
    for level, delay in ((b"1", 1_000), (b"18", 7_200_000), (b"99", 7_200_000)):
        assert codes.code(SCHEDULE_TOPIC, b"DELAY\1" + level + b"\2TAGS\1TagA\2", 5) == 5 + delay
    for level in (b"0", b"x", b"-1", b"9" * 30):
        assert codes.code(SCHEDULE_TOPIC, b"DELAY\1" + level + b"\2TAGS\1TagA\2", 5) == 2598919
    assert TagCodes([7, 8]).code(SCHEDULE_TOPIC, b"DELAY\x013\2", 5) == 13
    assert len(DELAYS_MS) == 18
    many = TagCodes()
    for number in range(10_000):
        tag = f"tag{number}"
        assert many.code(b"t", f"TAGS\1{tag}\2".encode(), 0) == java_hash(tag)


def test_prepared_and_rolled_back_messages_have_no_place() -> None:
    assert [in_queue(flag) for flag in (0, PREPARED, COMMIT, ROLLBACK)] == [True, False, True, False]


def test_a_log_ends_where_only_a_part_of_a_message_is() -> None:
    log = CommitLog(MemoryFiles(), file_bytes=4096)
    log.open()
    raw = encode(Message(b"t", b"x" * 600), 0, 0, 0)
    log.append_raw(raw[:500], 0)
    assert log.run(0, 4096) == ([], 0) == log.run(0, 400)
    log.append_raw(raw[500:], 500)
    assert log.run(0, len(raw) - 1) == ([], 0), "nothing beyond what was asked for"
    assert log.run(0, 4096, ask=100) == ([outline(raw)], len(raw)), "longer than what is read at first"


def with_queue(count: int) -> MemoryFiles:
    """The files of a queue "q" with so many messages of 100 bytes, four entries in each."""
    files = MemoryFiles()
    queue = ConsumeQueue(files, "q", file_bytes=20 * 4)
    for number in range(count):
        queue.append(number, 100 * number, 100, 0)
    queue.to_sync()
    return files


def test_queue_files_that_were_left_short_are_no_other_size() -> None:
    files = with_queue(11)
    files.content["q/" + "0" * 18 + "80"].resize(40)
    again = ConsumeQueue(files, "q", file_bytes=20 * 4)
    again.open(1_100)
    assert again.max_offset == 6 and files.list("q") == ["0" * 20, "0" * 18 + "80"]
    with pytest.raises(WrongStore, match="set mappedFileSizeConsumeQueue"):
        ConsumeQueue(files, "q", file_bytes=20 * 8).open(1_100)


def test_a_queue_whose_files_hold_no_entry_begins_anywhere_and_nothing_is_filled_up_to_there() -> None:
    files = MemoryFiles()
    files.open("q/" + "0" * 20, create=True).resize(20 * 4)
    queue = ConsumeQueue(files, "q", file_bytes=20 * 4)
    queue.open(1_100)
    queue.append(9, 0, 100, 0)
    queue.to_sync()
    assert files.list("q") == [f"{20 * 8:020d}"]
    assert (queue.min_offset, queue.max_offset, queue.entry(9)) == (9, 10, (0, 100, 0))


def test_a_damaged_queue_whose_lost_end_is_one_of_a_file_ends_there_after_another_start() -> None:
    files = with_queue(12)
    files.content["q/" + "0" * 18 + "80"].data[40:] = bytes(40)
    for _ in range(2):
        queue = ConsumeQueue(files, "q", file_bytes=20 * 4)
        queue.open(1_200, 1_200)
        queue.correct_min(600)  # and no message in front of the damage is left
        if queue.damaged:
            queue.end_where_it_did()
        assert queue.min_offset == queue.max_offset == 12


@pytest.mark.parametrize("begin", [12, 13], ids=["with a file", "within a file"])
def test_a_queue_begins_elsewhere_although_the_disk_refuses_at_first(begin: int) -> None:
    files = MemoryFiles()
    queue = ConsumeQueue(files, "q", file_bytes=20 * 4)
    calls = 0

    def refuses_twice(what: str) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise OSError(28, "No space left on device")

    files.hook = refuses_twice
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            queue.begin_at(begin)
    queue.begin_at(begin)
    again = ConsumeQueue(files, "q", file_bytes=20 * 4)
    again.open(0)
    assert queue.max_offset == again.max_offset == begin


def test_a_long_gap_is_filled_piece_by_piece_and_gone_on_with_when_there_is_room() -> None:
    files, held, begin = MemoryFiles(), list[int](), 4 * GATHERED - 1
    queue = ConsumeQueue(files, "q", file_bytes=20 * 4 * GATHERED)

    def refuses_once(what: str) -> None:
        held.append(len(queue.tail) // 20)
        if len(held) == 4:
            raise OSError(28, "No space left on device")

    files.hook = refuses_once
    with pytest.raises(OSError, match="No space left"):
        queue.begin_at(begin)
    assert 0 < queue.max_offset < begin
    queue.begin_at(begin)
    again = ConsumeQueue(files, "q", file_bytes=20 * 4 * GATHERED)
    again.open(0)
    assert queue.max_offset == again.max_offset == begin
    assert max(held) < 2 * GATHERED, "what was refused, and one piece more"


def test_a_queue_file_that_somebody_removed() -> None:
    for sure in (0, 1_200):
        files = MemoryFiles()
        queue = ConsumeQueue(files, "q", file_bytes=20 * 4)
        for number in range(12):
            queue.append(number, 100 * number, 100, 0)
        queue.to_sync()
        files.remove("q/" + "0" * 18 + "80")
        again = ConsumeQueue(files, "q", file_bytes=20 * 4)
        if sure:
            with pytest.raises(WrongStore, match="has no file before it: remove the whole folder consumequeue"):
                again.open(1_200, sure)
        else:
            again.open(1_200, sure)
            assert again.max_offset == 4, "not flushed, so a crash did it: told again"
