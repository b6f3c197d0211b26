"""Frames of both protocols, byte by byte and in any pieces."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ha.epochs import EPOCHS_MAX, Epoch, EpochList
from broker.ha.wire import (
    Ack,
    Block,
    Blocks,
    HaFrameError,
    MasterHandshake,
    MasterMessages,
    Reports,
    SlaveHandshake,
    SlaveMessages,
    Transfer,
    report,
)


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    bounds = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


def test_bytes_are_javas() -> None:
    assert SlaveHandshake(7, sync_from_last_file=True).to_bytes().hex() == "00000001" "0001" "0000" "0000000000000007"
    assert SlaveHandshake(7, async_learner=True).to_bytes().hex() == "00000001" "0000" "0001" "0000000000000007"
    assert Ack(258).to_bytes().hex() == "00000002" "0000000000000102"
    assert MasterHandshake(500, EpochList([(1, 0), (3, 300)])).to_bytes().hex() == (
        "00000001" "00000018" "00000000000001f4" "00000003"
        "00000001" "0000000000000000" "00000003" "000000000000012c")
    assert MasterHandshake(0, EpochList()).to_bytes().hex() == "00000001" "00000000" "0000000000000000" "ffffffff"
    assert Transfer(300, Epoch(3, 256), 299, b"log").to_bytes().hex() == (
        "00000002" "00000003" "000000000000012c" "00000003" "0000000000000100" "000000000000012b" "6c6f67")
    assert report(1).hex() == "0000000000000001"
    assert Block(5, b"ab").to_bytes().hex() == "0000000000000005" "00000002" "6162"


SLAVE = st.one_of(st.builds(SlaveHandshake, st.integers(0, 2**63 - 1), st.booleans(), st.booleans()),
                  st.builds(Ack, st.integers(0, 2**63 - 1)))
MASTER = st.one_of(
    st.builds(MasterHandshake, st.integers(0, 2**63 - 1),
              st.lists(st.integers(0, 9), unique=True).map(lambda ids: EpochList([(i, 9 * i) for i in sorted(ids)]))),
    st.builds(Transfer, st.integers(0, 2**63 - 99), st.builds(Epoch, st.integers(0, 9), st.integers(0, 99)),
              st.integers(-1, 99), st.binary(max_size=40)))
CUTS = st.lists(st.integers(0, 500), max_size=12)


@given(st.lists(SLAVE), CUTS)
def test_a_slaves_words_in_any_pieces(messages: list[SlaveHandshake | Ack], cuts: list[int]) -> None:
    decoder = SlaveMessages()
    data = b"".join(m.to_bytes() for m in messages)
    assert [m for piece in pieces(data, cuts) for m in decoder.feed(piece)] == messages


@given(st.lists(MASTER), CUTS)
def test_a_masters_words_in_any_pieces(messages: list[MasterHandshake | Transfer], cuts: list[int]) -> None:
    decoder = MasterMessages()
    data = b"".join(m.to_bytes() for m in messages)
    assert joined(m for piece in pieces(data, cuts) for m in decoder.feed(piece)) == joined(messages)


def joined(messages: Iterable[MasterHandshake | Transfer | Block]) -> list[object]:
    """Bytes of the log that follow each other as one message, however they came."""
    found: list[object] = []
    for message in messages:
        last = found[-1] if found else None
        if not isinstance(message, MasterHandshake) and message.body and type(last) is type(message):
            assert isinstance(last, Transfer | Block)
            if last.body and attrs.evolve(message, offset=last.offset, body=last.body) == last and (
                    message.offset == last.offset + len(last.body)):
                found[-1] = attrs.evolve(last, body=bytes(last.body) + bytes(message.body))
                continue
        found.append(message)
    return found


@given(st.lists(st.builds(Block, st.integers(0, 99), st.binary(max_size=20))), CUTS)
def test_blocks_in_any_pieces(blocks: list[Block], cuts: list[int]) -> None:
    decoder = Blocks()
    data = b"".join(b.to_bytes() for b in blocks)
    assert joined(b for piece in pieces(data, cuts) for b in decoder.feed(piece)) == joined(blocks)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1), CUTS)
def test_reports_in_any_pieces(offsets: list[int], cuts: list[int]) -> None:
    decoder = Reports()
    heard = [decoder.feed(piece) for piece in pieces(b"".join(map(report, offsets)), cuts)]
    told = [offset for offset in heard if offset is not None]
    assert told[-1] == offsets[-1]
    assert set(told) <= set(offsets)


@given(st.binary(max_size=120), CUTS)
def test_noise_is_refused_or_waits(data: bytes, cuts: list[int]) -> None:
    for decoder in (SlaveMessages(), MasterMessages(64), Blocks(64)):
        try:
            for piece in pieces(data, cuts):
                list(decoder.feed(piece))
        except HaFrameError:
            continue
        assert len(decoder._pieces._held) < 120, "never a body"


@pytest.mark.parametrize(("frame", "words"), [
    (struct.pack(">iq", 7, 0), "state 7, which there is not"),
    (struct.pack(">iq", -1, 0), "state -1, which there is not"),
    (struct.pack(">iq", 3, 0), r"state SUSPEND \(3\), which never travels"),
    (struct.pack(">iq", 2, -1), "acknowledged offset -1"),
    (struct.pack(">ihhq", 1, 2, 0, 1), "flags 2 and 0"),
    (struct.pack(">ihhq", 1, 0, 0, -1), "broker id -1"),
])
def test_what_a_master_refuses(frame: bytes, words: str) -> None:
    """An unknown state ended the thread that read it (apache/rocketmq#10853)."""
    with pytest.raises(HaFrameError, match=words):
        list(SlaveMessages().feed(frame))


@pytest.mark.parametrize(("frame", "words"), [
    (struct.pack(">ii", 9, 0), "state 9, which there is not"),
    (struct.pack(">ii", 2, -1), "body of -1 bytes"),
    (struct.pack(">ii", 2, 5 << 20), "body of 5242880 bytes"),
    (struct.pack(">ii", 1, 13), "13 bytes of epochs"),
    (struct.pack(">iiqi", 1, 0, -1, 0), "log ends at -1"),
    (struct.pack(">iiqiiqiq", 1, 24, 9, 2, 2, 5, 2, 9), "do not rise"),
    (Transfer(-2, Epoch(1, 0), 0).to_bytes(), "offset -2"),
    (Transfer(2**63 - 1, Epoch(1, 0), 0, b"xx").to_bytes(), "no log goes beyond"),
])
def test_what_a_slave_refuses(frame: bytes, words: str) -> None:
    with pytest.raises(HaFrameError, match=words):
        list(MasterMessages().feed(frame))


def test_a_java_master_without_a_byte_beats_from_behind_nothing() -> None:
    """It was left each time, every 5 s, and joined again."""
    assert list(MasterMessages().feed(Transfer(-1, Epoch(1, 0), 0).to_bytes())) == [Transfer(0, Epoch(1, 0), 0)]
    with pytest.raises(HaFrameError, match="the master sent offset -1"):
        list(MasterMessages().feed(Transfer(-1, Epoch(1, 0), 0, b"x").to_bytes()))


def test_what_the_default_protocol_refuses() -> None:
    with pytest.raises(HaFrameError, match="reported offset -1"):
        Reports().feed(report(-1))
    with pytest.raises(HaFrameError, match="-5 bytes at offset 3"):
        list(Blocks().feed(struct.pack(">qi", 3, -5)))
    with pytest.raises(HaFrameError, match=f"at offset {2**63 - 1}"):  # what the slave reports next has no room
        list(Blocks().feed(struct.pack(">qi", 2**63 - 1, 2)))


def test_a_handshake_split_behind_twelve_bytes_waits_for_the_rest() -> None:
    """There the missing bytes were read as they lay in the buffer."""
    decoder, frame = SlaveMessages(), SlaveHandshake(5).to_bytes()
    for size in (12, 13, 14, 15):
        assert list(decoder.feed(frame[:size])) == []
        assert list(decoder.feed(frame[size:])) == [SlaveHandshake(5)]


def test_more_epochs_than_a_java_master_could_tell() -> None:
    many = EpochList([(e, 10 * e) for e in range(EPOCHS_MAX + 500)])
    (told,) = MasterMessages().feed(MasterHandshake(10**6, many).to_bytes())
    assert isinstance(told, MasterHandshake)
    assert told.epochs.entries == many.entries[-EPOCHS_MAX:]


def test_epochs_that_wrote_nothing_at_the_very_beginning_are_told_to_java_slaves() -> None:
    """Epochs 1 and 2 were over before the first message: a Java slave that has heard of epoch 1 finds it here, with
    offset 0 in common, and is not stuck."""
    frame = MasterHandshake(500, EpochList([(3, 0), (4, 300)])).to_bytes()
    assert list(struct.iter_unpack(">iq", frame[20:])) == [(1, 0), (2, 0), (3, 0), (4, 300)]
    assert list(MasterMessages().feed(frame)) == [MasterHandshake(500, EpochList([(3, 0), (4, 300)]))]
    assert len(MasterHandshake(0, EpochList([(5_000, 0)])).to_bytes()) == 20 + 12 * EPOCHS_MAX
    assert len(MasterHandshake(9, EpochList([(3, 5)])).to_bytes()) == 20 + 12
