"""The key index: every key is found, after closing and after a crash, and its bytes are those that Java wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from broker.store.files import MemoryFiles
from broker.store.indexfile import GATHERED, KeyIndex, file_name
from broker.store.keys import key_hash, keys_of
from remoting import record as codec
from remoting.record import ROLLBACK, Outline, encode_properties

GOLDEN = Path(__file__).parents[2] / "remoting" / "golden_records"


@given(st.integers(0, 250_000_000_000_000))
def test_files_are_named_after_the_time(time_ms: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    assert file_name(time_ms) == f"{moment:%Y%m%d%H%M%S}{time_ms % 1000:03d}"


def told(number: int, keys: str, sys_flag: int = 0) -> Outline:
    return number * 100, 100, 0, number, sys_flag, 1000 + number * 500, b"t", encode_properties({"KEYS": keys})


def opened(files: MemoryFiles, log_end: int = 1 << 40) -> KeyIndex:
    index = KeyIndex(files, slots=7, entries=16)
    index.open(log_end)
    return index


def test_the_smallest_hash_has_no_positive() -> None:
    assert key_hash("polygenelubricants") == 0


def test_keys_of_a_message_that_java_wrote() -> None:
    lines = [json.loads(line) for line in (GOLDEN / "records.ndjson").read_text().splitlines()]
    raw = bytes.fromhex(next(line["record"] for line in lines if line["what"] == "tagged with UTF-8"))
    found = keys_of(codec.outline(raw))
    assert found == ["Orders#FD000000000000000000000000000002668830946E0968C79A760001", "Orders#k1", "Orders#k2",
                     "Orders#T#TagA"]
    assert [key_hash(key) for key in found] == [544034772, 1613244260, 1613244261, 257998356], "as in Java's file"
    assert keys_of(told(1, "k", ROLLBACK)) == []


def test_every_key_is_found_across_files() -> None:
    files = MemoryFiles()
    index = opened(files)
    for number in range(50):
        index.take([told(number, f"k{number % 20} all")])
    for _ in range(2):
        assert index.find("t#k3", 10, 0, 1 << 40) == [4300, 2300, 300]
        assert index.find("t#all", 100, 0, 1 << 40) == [number * 100 for number in reversed(range(50))]
        assert index.find("t#all", 2, 0, 1 << 40) == [4900, 4800]
        assert index.find("t#nothing", 10, 0, 1 << 40) == []
        assert set(index.find("t#all", 100, 11_000, 12_000)) >= {2000, 2100, 2200}
        assert len(index.find("t#all", 100, 11_000, 12_000)) < 10
        index.flush()
        index.close()
        index = opened(files)
    assert len(files.list("index")) > 5
    index.delete_before(2000)
    assert 0 < len(index.find("t#all", 100, 0, 1 << 40)) < 40


def test_telling_again_adds_nothing_and_what_was_truncated_is_told_anew() -> None:
    index = opened(MemoryFiles())
    for _ in range(2):
        for number in range(5):
            index.take([told(number, "k")])
    assert index.find("t#k", 100, 0, 1 << 40) == [400, 300, 200, 100, 0]
    index.truncate(300)
    index.take([told(3, "other")])
    assert index.find("t#other", 100, 0, 1 << 40) == [300]


def test_messages_are_entered_together_and_found_before() -> None:
    index = KeyIndex(MemoryFiles(), slots=7, entries=4 * GATHERED)
    index.open(1 << 40)
    for number in range(GATHERED):
        index.take([told(number, "k")])
    assert not index.unflushed_bytes
    index.take([told(GATHERED, "k")])
    assert index.unflushed_bytes == 20 * GATHERED
    index.truncate(100 * GATHERED)
    index.take([told(GATHERED, "other")])
    assert index.find("t#k", 1000, 0, 1 << 40) == [number * 100 for number in reversed(range(GATHERED))]
    assert index.find("t#other", 10, 0, 1 << 40) == [100 * GATHERED]
    index.take([told(GATHERED + 1, "k")])
    index.clear()
    assert not index.find("t#k", 10, 0, 1 << 40)


def test_a_crash_loses_no_key_that_was_flushed() -> None:
    for seed in range(60):
        rng = Random(seed)
        files = MemoryFiles()
        sure, number = 0, 0
        for _ in range(4):
            index = opened(files)
            found = index.find("t#k", 1000, 0, 1 << 40)
            assert set(found) >= {100 * each for each in range(sure)}, seed
            for _ in range(rng.randrange(8)):
                index.take([told(number, "k")])
                number += 1
                if rng.random() < 0.3:
                    index.flush()
                    sure = number
            files.crash(lambda size, rng=rng: rng.choice((0, size, rng.randrange(size + 1))))  # type: ignore[misc]
            number = sure
            index = opened(files, 100 * sure)
