"""The description of a snapshot as bytes: one form for each, and nothing else is taken."""

from __future__ import annotations

import attrs
import cbor2
import pytest

from raft.errors import MalformedMessage
from raft.membership import Member, Membership
from raft.messages import SnapshotMeta
from raft.snapshotmeta import META_BYTES_MAX, decode_meta, encode_meta

ONE = Membership(("n0",), members={"n0": Member("h0:1")})
META = SnapshotMeta(9, 3, 5, ONE, 9, 7, 11, 13)
FIELDS = cbor2.loads(encode_meta(META))
WIDEST = SnapshotMeta((1 << 63) - 1, (1 << 63) - 1, (1 << 32) - 1, ONE, (1 << 63) - 1, (1 << 63) - 1, (1 << 32) - 1,
                      (1 << 64) - 1)


@pytest.mark.parametrize("meta", [META, WIDEST, SnapshotMeta(1, 1, 0, ONE, 0, 0, 0, 0)])
def test_what_is_encoded_is_decoded(meta: SnapshotMeta) -> None:
    assert decode_meta(encode_meta(meta)) == meta


def test_the_fields_have_their_places_on_disk_and_on_the_wire() -> None:
    assert FIELDS == [1, 9, 3, 5, ONE.encode(), 9, 7, 11, 13]


def test_a_meta_as_large_as_may_be_is_read_and_no_larger_one() -> None:
    def sized(padding: int) -> bytes:
        return encode_meta(attrs.evolve(META, membership=Membership(("n0",), members={"n0": Member("h" * padding)})))

    fits = META_BYTES_MAX - len(sized(60_000)) + 60_000
    assert decode_meta(sized(fits)).index == META.index
    with pytest.raises(MalformedMessage, match="at most 65536 are read"):
        decode_meta(sized(fits + 1))


@pytest.mark.parametrize(("at", "value"), [
    *[(at, wrong) for at in (1, 2, 3, 5, 6, 7, 8) for wrong in (-1, 1.0, None, True, b"1")],
    *[(at, 1 << bits) for at, bits in ((1, 63), (2, 63), (3, 32), (5, 63), (6, 63), (7, 32), (8, 64))],
    (0, 0), (0, 2), (1, 0), (2, 0), (5, 10), (4, "n0"), (4, None), (4, b""), (4, b"\x80"),
])
def test_a_field_that_breaks_a_rule_is_refused(at: int, value: object) -> None:
    with pytest.raises(MalformedMessage, match=r"not a (snapshot meta|membership)"):
        decode_meta(cbor2.dumps([*FIELDS[:at], value, *FIELDS[at + 1 :]]))


@pytest.mark.parametrize("data", [
    b"", cbor2.dumps(FIELDS[:-1]), cbor2.dumps([*FIELDS, 1]), cbor2.dumps(dict(enumerate(FIELDS))),
    encode_meta(META) + b"\0", b"\x98\x09" + encode_meta(META)[1:], b"\x81" * 5_000], ids=range(7))
def test_bytes_of_another_form_are_refused(data: bytes) -> None:
    """Two copies of one meta have equal bytes."""
    with pytest.raises(MalformedMessage, match="not a snapshot meta"):
        decode_meta(data)
