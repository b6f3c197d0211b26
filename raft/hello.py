"""The first message on each connection, both ways. It says who is there, and whether the two fit. No I/O.

The dialler greets with a ``Hello``; the acceptor answers with its own or with a ``HelloRefusal``, a sentence that both
ends report. A ``Ping`` may follow from the acceptor later, to find out whether a quiet connection still has another
end. All three are greetings: 24 bytes of header, the same in every version of the protocol so that even two versions
that share nothing can say so in words, and a CBOR payload of at most 4,072 bytes.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, Final

import attrs
import cbor2
from google_crc32c import value as crc32c

from raft.arguments import NAME_BYTES_MAX, fits
from raft.errors import HandshakeRefused, MalformedMessage, UsageError
from raft.lives import NONE_MET, Met, take_met
from raft.status import RefusalKind

MAGIC: Final = b"\xa7QRh"
VERSIONS: Final = (1, 1)
"""Oldest and newest version of the peer protocol that this build speaks (``wire.VERSION``)."""
FEATURES: Final = 0
"""Feature bits of this build; none exists yet."""
REQUIRED_FEATURES: Final = 0xFFFF_FFFF_0000_0000
"""A node that sets one of these wants no peer that does not know it; the lower bits are offers."""
GREETING_BYTES_MAX: Final = 4_096
INCARNATION_BYTES: Final = 16

_HEADER: Final = struct.Struct("<4sBBBBQII")
HEADER_BYTES: Final = _HEADER.size
assert HEADER_BYTES == 24
_HELLO, _REFUSAL, _PING = 1, 2, 3


class Lane(enum.IntEnum):
    """The purposes of connections. Peer connections carry messages from the dialler to the acceptor only."""

    CONTROL = 0
    """Messages without frames or state, which so never wait behind these."""
    BULK = 1
    """Messages with frames and snapshot chunks."""
    CLIENT = 2
    """The client protocol, both ways."""


@attrs.frozen(kw_only=True)
class Hello:
    """The greeting of one end: who greets, and for which purpose."""

    cluster: str
    """Name of the cluster; empty: any (clients only)."""
    node: str
    """Id of the node; empty for a client."""
    incarnation: bytes
    """16 random bytes of the node's directory; empty for a client."""
    lane: Lane
    boot: int = 0
    """Random number of this run of the process. It distinguishes two processes on copies of one directory."""
    rules: str = ""
    """Name of the election rules; empty: nothing to compare."""
    address: str = ""
    """Where the greeting node listens, ``host:port``."""
    expects: str = ""
    """Id of the node that the dialler wants; empty: any node."""
    lease_ms: int = 0
    """Time for which this node ignores other candidates after it heard a leader; leases rest on it. 0: nothing to
    compare."""
    request_bytes_max: int = 0
    """Largest request in bytes that this node takes from a client; 0: not said."""
    life: int = 0
    """Number of this life of the directory (``raft.lives``); 0: not said."""
    met: Met = NONE_MET
    """Lives of the other node that the greeting node met."""
    versions: tuple[int, int] = VERSIONS
    features: int = FEATURES


@attrs.frozen
class HelloRefusal:
    """The reason why there will be no connection, for the operator at the other end."""

    kind: RefusalKind
    reason: str


@attrs.frozen
class Ping:
    """An empty message: sending it breaks a connection whose other end is gone."""


Greeting = Hello | HelloRefusal | Ping


class Refused(HandshakeRefused):
    """A hello does not fit; ``kind`` is the kind of reason."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


# --- bytes ---------------------------------------------------------------------------------------------------


def encode_greeting(greeting: Greeting) -> bytes:
    """Encode a greeting. Raises ``UsageError`` if a text is too long, or the incarnation has not 0 or 16 bytes."""
    if isinstance(greeting, Hello):
        texts = (greeting.cluster, greeting.node, greeting.rules, greeting.address, greeting.expects)
        if not all(fits(text) for text in texts) or len(greeting.incarnation) not in (0, INCARNATION_BYTES):
            raise UsageError(
                f"a name in a hello is printable text of at most {NAME_BYTES_MAX} bytes, an incarnation 16: {greeting}"
            )
        payload = cbor2.dumps([
            greeting.cluster, greeting.node, greeting.incarnation, greeting.boot, greeting.rules, greeting.address,
            greeting.expects, greeting.lease_ms, greeting.request_bytes_max, greeting.life,
            [greeting.met.incarnation, list(greeting.met.lives)],
        ])
        return _seal(_HELLO, greeting.lane, *greeting.versions, greeting.features, payload)
    if isinstance(greeting, HelloRefusal):
        reason = greeting.reason.encode("utf-8", "replace")[:2_000].decode("utf-8", "ignore")
        return _seal(_REFUSAL, 0, *VERSIONS, FEATURES, cbor2.dumps([greeting.kind.value, reason]))
    return _seal(_PING, 0, *VERSIONS, FEATURES, b"")


def _seal(kind: int, lane: int, oldest: int, newest: int, features: int, payload: bytes) -> bytes:
    assert HEADER_BYTES + len(payload) <= GREETING_BYTES_MAX, "the other end takes no more"
    head = _HEADER.pack(MAGIC, kind, lane, oldest, newest, features, len(payload), 0)
    return head[:-4] + struct.pack("<I", crc32c(head[:-4] + payload)) + payload


def decode_greeting(data: bytes | bytearray) -> tuple[Greeting, int] | None:
    """Return the greeting at the start of ``data`` and its length; None while more bytes are needed.

    Raises ``MalformedMessage`` at the first wrong byte: bytes of another protocol must not keep it waiting.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise MalformedMessage(f"not a raft greeting: it starts with {bytes(data[:4])!r}")
    if len(data) < HEADER_BYTES:
        return None
    _, kind, lane, oldest, newest, features, size, crc = _HEADER.unpack_from(data)
    if HEADER_BYTES + size > GREETING_BYTES_MAX:
        raise MalformedMessage(f"a greeting of {HEADER_BYTES + size} bytes; at most {GREETING_BYTES_MAX} are taken")
    end = HEADER_BYTES + size
    if len(data) < end:
        return None
    payload = bytes(data[HEADER_BYTES:end])
    if crc32c(bytes(data[: HEADER_BYTES - 4]) + payload) != crc:
        raise MalformedMessage("greeting fails its CRC")
    if kind == _PING:
        return Ping(), end
    try:
        fields = cbor2.loads(payload)
        if kind == _HELLO:
            return _take_hello(fields, Lane(lane), (oldest, newest), features), end
        if kind == _REFUSAL:
            return _take_refusal(fields), end
    except (ValueError, TypeError, cbor2.CBORError, RecursionError, OverflowError, MemoryError) as error:
        raise MalformedMessage(f"not a greeting: {error}") from error
    raise MalformedMessage(f"a greeting of unknown kind {kind}")


def _take_hello(fields: Any, lane: Lane, versions: tuple[int, int], features: int) -> Hello:
    # Later versions may append fields, but not change these.
    if type(fields) is not list or len(fields) < 7:
        raise ValueError("a hello has seven fields")
    cluster, node, incarnation, boot, rules, address, expects = fields[:7]
    lease_ms, request_bytes_max, life = [*fields[7:10], 0, 0, 0][:3]
    met = take_met(fields[10]) if len(fields) > 10 else NONE_MET
    if not all(fits(text) for text in (cluster, node, rules, address, expects)):
        raise ValueError(f"a name is printable text of at most {NAME_BYTES_MAX} bytes")
    if type(incarnation) is not bytes or type(boot) is not int or boot < 0 or boot >> 64:
        raise ValueError("wrong incarnation or boot number")
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in (lease_ms, request_bytes_max, life)):
        raise ValueError("wrong lease, request size or life")
    if lane is Lane.CLIENT:
        if len(incarnation) not in (0, INCARNATION_BYTES):
            raise ValueError("wrong incarnation")
    elif not cluster or not node or len(incarnation) != INCARNATION_BYTES:
        raise ValueError("a node names its cluster, itself and its incarnation of 16 bytes")
    return Hello(
        cluster=cluster, node=node, incarnation=incarnation, lane=lane, boot=boot, rules=rules, address=address,
        expects=expects, lease_ms=lease_ms, request_bytes_max=request_bytes_max, life=life, met=met,
        versions=versions, features=features,
    )


def _take_refusal(fields: Any) -> HelloRefusal:
    if type(fields) is not list or len(fields) != 2 or not all(type(text) is str for text in fields):
        raise ValueError("a refusal has a kind and a reason")
    kind, reason = fields
    known = {member.value: member for member in RefusalKind}
    printable = "".join(character if character.isprintable() else " " for character in reason)
    return HelloRefusal(known.get(kind, RefusalKind.OTHER), printable)


# --- whether two hellos fit ----------------------------------------------------------------------------------


def check_hello(own: Hello, theirs: Hello) -> None:
    """Raise ``Refused`` if the two ends do not fit. Both ends decide the same; the words name both sides."""
    if own.versions[0] > theirs.versions[1] or theirs.versions[0] > own.versions[1]:
        raise Refused(
            RefusalKind.VERSION,
            f"{_name(own)} speaks versions {_range(own.versions)} of the protocol, "
            f"{_name(theirs)} speaks {_range(theirs.versions)}",
        )
    if (unknown := theirs.features & REQUIRED_FEATURES & ~own.features) or (
        unknown := own.features & REQUIRED_FEATURES & ~theirs.features
    ):
        raise Refused(
            RefusalKind.VERSION, f"{_name(own)} and {_name(theirs)} do not share the required features {unknown:#x}"
        )
    if own.cluster != theirs.cluster and own.cluster and theirs.cluster:
        raise Refused(
            RefusalKind.CLUSTER,
            f"{_name(own)} belongs to cluster {own.cluster!r}, {_name(theirs)} to cluster {theirs.cluster!r}",
        )
    _check_names(own, theirs)
    if own.rules != theirs.rules and own.rules and theirs.rules:
        raise Refused(
            RefusalKind.RULES,
            f"{_name(own)} runs {own.rules!r} election rules, {_name(theirs)} runs {theirs.rules!r}",
        )
    if own.lease_ms != theirs.lease_ms and own.lease_ms and theirs.lease_ms:
        raise Refused(
            RefusalKind.RULES,
            f"{_name(own)} has election_timeout_ms={own.lease_ms}, {_name(theirs)} has {theirs.lease_ms}: a leader's "
            "lease rests on the silence that all members keep, so all must have the same",
        )


def _check_names(own: Hello, theirs: Hello) -> None:
    if own.node and own.node == theirs.node and theirs.lane is not Lane.CLIENT:
        if (own.incarnation, own.boot) == (theirs.incarnation, theirs.boot):
            sought = own.expects or theirs.expects or "a peer"
            reason = f"{_name(own)} reached itself: the address of {sought!r} is its own"
        else:
            reason = f"two nodes have the id {own.node!r}: one at {own.address!r}, one at {theirs.address!r}"
        raise Refused(RefusalKind.IDENTITY, reason)
    for wanted, found in ((own, theirs), (theirs, own)):
        if wanted.expects and wanted.expects != found.node:
            raise Refused(
                RefusalKind.IDENTITY,
                f"{_name(wanted)} looked for node {wanted.expects!r} and found {_name(found)}; one address is wrong",
            )


def check_same_process(known: Hello, theirs: Hello) -> None:
    """Raise ``Refused`` if a node that is connected already greets from another directory or process."""
    if known.incarnation != theirs.incarnation:
        what = f"with incarnation {known.incarnation.hex()[:8]}, and now greets with {theirs.incarnation.hex()[:8]}"
        raise Refused(
            RefusalKind.IDENTITY,
            f"node {theirs.node!r} is connected {what}: two nodes share an id, or one was wiped and the old still runs",
        )
    if known.boot != theirs.boot:
        raise Refused(
            RefusalKind.IDENTITY,
            f"node {theirs.node!r} is connected from another process with the same directory contents: "
            "an old connection that is about to break, or a copied directory",
        )


def _name(hello: Hello) -> str:
    return f"node {hello.node!r}" if hello.node else "a client"


def _range(versions: tuple[int, int]) -> str:
    return f"{versions[0]} to {versions[1]}"
