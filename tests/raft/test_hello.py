"""Greetings survive the wire, foreign bytes do no harm, and each misfit is refused in words that name both sides."""

from __future__ import annotations

import contextlib
import struct

import attrs
import cbor2
import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from raft.errors import HandshakeRefused, MalformedMessage, UsageError
from raft.hello import (
    GREETING_BYTES_MAX,
    HEADER_BYTES,
    Greeting,
    Hello,
    HelloRefusal,
    Lane,
    Ping,
    Refused,
    check_hello,
    check_same_process,
    decode_greeting,
    encode_greeting,
)
from raft.status import RefusalKind

PRINTABLE = st.characters(codec="utf-8").filter(str.isprintable)
NAME = st.text(PRINTABLE, max_size=60)
HELLOS = st.builds(
    Hello,
    cluster=st.text(PRINTABLE, min_size=1, max_size=60), node=st.text(PRINTABLE, min_size=1, max_size=60),
    incarnation=st.binary(min_size=16, max_size=16), lane=st.sampled_from(Lane), boot=st.integers(0, (1 << 64) - 1),
    rules=NAME, address=NAME, expects=NAME, versions=st.tuples(st.integers(0, 255), st.integers(0, 255)),
    features=st.integers(0, (1 << 64) - 1), lease_ms=st.integers(0, 1 << 40), request_bytes_max=st.integers(0, 1 << 40),
)
CLIENTS = st.builds(Hello, cluster=NAME, node=NAME, incarnation=st.just(b""), lane=st.just(Lane.CLIENT))
GREETINGS: st.SearchStrategy[Greeting] = st.one_of(
    HELLOS, CLIENTS, st.builds(HelloRefusal, st.sampled_from(RefusalKind), st.text(PRINTABLE, max_size=300)),
    st.just(Ping())
)

MINE = Hello(cluster="c", node="n0", incarnation=b"0" * 16, lane=Lane.CONTROL, boot=1, rules="strict", address="a:1",
             lease_ms=400, request_bytes_max=1_000)
PEER = attrs.evolve(MINE, node="n1", incarnation=b"1" * 16, boot=2, address="b:1")


def sealed(kind: int, payload: bytes, *, lane: int = 0) -> bytes:
    head = struct.pack("<4sBBBBQI", b"\xa7QRh", kind, lane, 1, 1, 0, len(payload))
    return head + struct.pack("<I", crc32c(head + payload)) + payload


@given(GREETINGS, st.binary(max_size=9))
def test_a_greeting_survives_in_any_pieces_and_leaves_what_follows(greeting: Greeting, rest: bytes) -> None:
    data = encode_greeting(greeting)
    assert len(data) <= GREETING_BYTES_MAX
    for cut in range(len(data)):
        assert decode_greeting(data[:cut]) is None
    assert decode_greeting(bytearray(data + rest)) == (greeting, len(data))


@pytest.mark.parametrize(("data", "greeting"), [
    ("a75152680101010100000000000000003000000011d3ff468b6163626e305030303030303030303030303030303030016673747269637463"
     "613a31626e311901901903e807824080",
     attrs.evolve(MINE, lane=Lane.BULK, expects="n1", life=7)),
    ("a75152680102010100000000000000000e0000002374f9f28b60604000606060000000824080",
     Hello(cluster="", node="", incarnation=b"", lane=Lane.CLIENT)),
    ("a75152680200010100000000000000000c0000004eec86a98267636c7573746572626e6f",
     HelloRefusal(RefusalKind.CLUSTER, "no")),
    ("a75152680300010100000000000000000000000041aea105", Ping()),
], ids=["node", "client", "refusal", "ping"])
def test_bytes_of_version_1_stay_as_they_are(data: str, greeting: Greeting) -> None:
    """Nodes and clients of earlier releases send and read them; never edit a line."""
    assert encode_greeting(greeting).hex() == data
    assert decode_greeting(bytes.fromhex(data)) == (greeting, len(data) // 2)


def test_numbers_may_be_as_large_as_their_fields() -> None:
    most = (1 << 63) - 1
    hello = attrs.evolve(MINE, boot=(1 << 64) - 1, lease_ms=most, request_bytes_max=most, life=most)
    found = decode_greeting(encode_greeting(hello))
    assert found is not None and found[0] == hello


@given(st.binary(max_size=100))
def test_random_bytes_give_nothing_but_malformed_message(data: bytes) -> None:
    for bytes_in in (data, b"\xa7QRh" + data, sealed(1, data), sealed(2, data)):
        with contextlib.suppress(MalformedMessage):
            decode_greeting(bytes_in)


@given(GREETINGS, st.data())
def test_one_changed_byte_never_passes(greeting: Greeting, data: st.DataObject) -> None:
    sent = bytearray(encode_greeting(greeting))
    at = data.draw(st.integers(0, len(sent) - 1).filter(lambda at: not 16 <= at < 20))  # a length may ask for more
    sent[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MalformedMessage):
        decode_greeting(sent)


def test_a_foreign_protocol_is_known_by_its_first_wrong_byte() -> None:
    for start in (b"G", b"\x16", b"\x00", b"\xa7P", b"\xa7QRf"):
        with pytest.raises(MalformedMessage, match="not a raft greeting"):
            decode_greeting(start)


def test_a_length_beyond_the_limit_is_refused_before_the_payload() -> None:
    def head(size: int) -> bytes:
        return struct.pack("<4sBBBBQII", b"\xa7QRh", 1, 0, 1, 1, 0, size - HEADER_BYTES, 0)

    assert decode_greeting(head(GREETING_BYTES_MAX)) is None
    with pytest.raises(MalformedMessage, match="at most 4096"):
        decode_greeting(head(GREETING_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "fields",
    [
        ["c", "n1", b"1" * 16, 1, "strict", "a:1"],
        ["", "n1", b"1" * 16, 1, "strict", "a:1", ""],
        ["c", "", b"1" * 16, 1, "strict", "a:1", ""],
        ["c", "n1", b"1" * 15, 1, "strict", "a:1", ""],
        ["c", "n1", b"", 1, "strict", "a:1", ""],
        ["c", "n1", b"1" * 16, -1, "strict", "a:1", ""],
        ["c", "n1", b"1" * 16, 1 << 64, "strict", "a:1", ""],
        ["c", "n1", b"1" * 16, True, "strict", "a:1", ""],
        ["c", "n1", b"1" * 16, 1, "strict", "a:1", "", -1, 0],
        ["c", "n1", b"1" * 16, 1, "strict", "a:1", "", 400, 1 << 63],
        ["c", "n1", b"1" * 16, 1, "strict", "a:1", "", "400"],
        ["c", "n1" * 128, b"1" * 16, 1, "strict", "a:1", ""],
        ["c", b"n1", b"1" * 16, 1, "strict", "a:1", ""],
        ["c", "n1\nall is well", b"1" * 16, 1, "strict", "a:1", ""],
        {"c": 1}, 7, None,
    ],
    ids=str,
)
def test_a_hello_that_breaks_a_rule_is_malformed(fields: object) -> None:
    with pytest.raises(MalformedMessage):
        decode_greeting(sealed(1, cbor2.dumps(fields)))


def test_a_later_version_may_append_fields_and_kinds_of_refusal() -> None:
    fields = ["c", "n1", b"1" * 16, 1, "strict", "a:1", ""]
    lives = [b"", []]
    for more in ([], [400], [400, 1_000], [400, 1_000, 7], [400, 1_000, 7, lives],  # earlier versions ended at fields
                 [400, 1_000, 7, lives, "new"]):
        found = decode_greeting(sealed(1, cbor2.dumps([*fields, *more])))
        assert found is not None and isinstance(found[0], Hello) and found[0].node == "n1"
        assert [found[0].lease_ms, found[0].request_bytes_max] == [*more, 0, 0][:2]
    refused = decode_greeting(sealed(2, cbor2.dumps(["brand new", "because"])))
    assert refused is not None and refused[0] == HelloRefusal(RefusalKind.OTHER, "because")


@pytest.mark.parametrize("kind", [0, 4, 255])
def test_an_unknown_kind_is_malformed(kind: int) -> None:
    with pytest.raises(MalformedMessage, match="unknown kind"):
        decode_greeting(sealed(kind, cbor2.dumps([])))


def test_an_unknown_lane_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        decode_greeting(sealed(1, cbor2.dumps(["c", "n1", b"1" * 16, 1, "strict", "a:1", ""]), lane=3))


def test_names_too_long_are_refused_where_they_are_made() -> None:
    with pytest.raises(UsageError):
        encode_greeting(attrs.evolve(MINE, cluster="é" * 128))
    with pytest.raises(UsageError):
        encode_greeting(attrs.evolve(MINE, incarnation=b"short"))


def test_a_refusal_cannot_begin_a_log_line_of_its_own() -> None:
    found = decode_greeting(sealed(2, cbor2.dumps(["cluster", "no\nERROR all is lost\x1b[2J"])))
    assert found is not None and found[0] == HelloRefusal(RefusalKind.CLUSTER, "no ERROR all is lost [2J")


@pytest.mark.parametrize(("character", "count"), [("é", 1000), ("x", 2000)])
def test_a_long_refusal_is_cut_at_a_character(character: str, count: int) -> None:
    found = decode_greeting(encode_greeting(HelloRefusal(RefusalKind.OTHER, character * 3000)))
    assert found is not None and found[0] == HelloRefusal(RefusalKind.OTHER, character * count)


# --- which hellos fit ----------------------------------------------------------------------------------------


def test_two_nodes_of_one_cluster_fit() -> None:
    check_hello(MINE, PEER)
    check_hello(PEER, MINE)
    check_hello(attrs.evolve(MINE, expects="n1"), attrs.evolve(PEER, expects="n0"))


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"cluster": "d"}, RefusalKind.CLUSTER, ["'n0'", "'c'", "'n1'", "'d'"]),
        ({"versions": (2, 3)}, RefusalKind.VERSION, ["'n0'", "1 to 1", "'n1'", "2 to 3"]),
        ({"versions": (0, 0)}, RefusalKind.VERSION, ["'n0'", "1 to 1", "'n1'", "0 to 0"]),
        ({"features": 1 << 40}, RefusalKind.VERSION, ["required features", "0x10000000000"]),
        ({"rules": "dledger"}, RefusalKind.RULES, ["'n0'", "'strict'", "'n1'", "'dledger'"]),
        ({"lease_ms": 300}, RefusalKind.RULES, ["'n0' has", "'n1' has", "=", "300", "400"]),
        ({"node": "n0"}, RefusalKind.IDENTITY, ["two nodes have the id 'n0'", "'a:1'", "'b:1'"]),
        ({"node": "n0", "incarnation": b"0" * 16, "boot": 1}, RefusalKind.IDENTITY, ["'n0'", "reached itself"]),
        ({"node": "n0", "incarnation": b"0" * 16, "boot": 1, "expects": "n9"}, RefusalKind.IDENTITY,
         ["the address of 'n9' is its own"]),
        ({"expects": "n2"}, RefusalKind.IDENTITY, ["'n1'", "looked for node 'n2'", "found node 'n0'"]),
    ],
    ids=str,
)
def test_each_misfit_is_refused_alike_on_both_ends(
    change: dict[str, object], kind: RefusalKind, words: list[str]
) -> None:
    theirs = attrs.evolve(PEER, **change)  # type: ignore[arg-type]
    for one, other in ((MINE, theirs), (theirs, MINE)):
        with pytest.raises(Refused) as caught:
            check_hello(one, other)
        assert caught.value.kind is kind
        assert isinstance(caught.value, HandshakeRefused)
        assert all(word in caught.value.reason for word in words), caught.value.reason


def test_where_no_lease_is_granted_there_is_nothing_to_compare() -> None:
    check_hello(MINE, attrs.evolve(PEER, lease_ms=0))
    check_hello(MINE, attrs.evolve(PEER, request_bytes_max=7))


def test_optional_features_and_overlapping_versions_are_no_misfit() -> None:
    check_hello(MINE, attrs.evolve(PEER, features=0b101, versions=(1, 9)))


def test_a_client_needs_no_rules_name_or_cluster_but_not_a_wrong_one() -> None:
    client = Hello(cluster="", node="", incarnation=b"", lane=Lane.CLIENT)
    check_hello(MINE, client)
    check_hello(MINE, attrs.evolve(client, node="n0"))  # a client may call itself anything
    with pytest.raises(Refused, match="a client to cluster 'd'"):
        check_hello(MINE, attrs.evolve(client, cluster="d"))
    with pytest.raises(Refused, match="looked for node 'n5'"):
        check_hello(MINE, attrs.evolve(client, expects="n5"))


def test_a_second_directory_or_process_under_one_id_is_told_apart() -> None:
    check_same_process(PEER, attrs.evolve(PEER, lane=Lane.BULK))
    with pytest.raises(Refused, match="two nodes share an id, or one was wiped"):
        check_same_process(PEER, attrs.evolve(PEER, incarnation=b"2" * 16))
    with pytest.raises(Refused, match="copied directory"):
        check_same_process(PEER, attrs.evolve(PEER, boot=3))
