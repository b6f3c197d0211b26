"""Requests and answers between a client and a node, as values and as bytes. No I/O; knows no roles and connections.

After the greetings (``hello``, lane CLIENT) both sides send blocks, little-endian, each behind its u32 length:

    request   u32 length | u64 id | u64 group | u8 op | u8 level | u16 0 | u32 timeout_ms (0: the node's) | body
    answer    u32 length | u64 id | u8 result | u8 0 | u16 0 | body (CBOR)

Ids are the client's; answers come in any order. The body of a PROPOSE or QUERY is the raw command, that of a
PROPOSE_MANY a u32 count, as many u32 lengths, and the raw commands; of TRANSFER and RECONFIGURE it is CBOR; the others
have none. A block's length is checked before any of it is kept. Decoders raise only ``MalformedMessage``.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import cbor2

from raft.config import Config, Read
from raft.errors import (
    Busy,
    Faulted,
    MalformedMessage,
    NotAllowed,
    NotLeader,
    RaftError,
    Rejected,
    RejectReason,
    Unknown,
    UsageError,
)

ANSWER_BYTES_MAX: Final = 16 << 20
"""Largest answer that a node sends and a client takes."""
REQUEST_OVERHEAD_BYTES: Final = 64
"""Most bytes that a request adds to its commands, not counting the table of PROPOSE_MANY."""
PLAN_BYTES_MAX: Final = 64 << 10
"""Largest CBOR body of a request."""

_LENGTH: Final = struct.Struct("<I")
LENGTH_BYTES: Final = _LENGTH.size
_REQUEST: Final = struct.Struct("<QQBBHI")
_ANSWER: Final = struct.Struct("<QBBH")
_PREFIXED_REQUEST: Final = struct.Struct("<IQQBBHI")
_PREFIXED_ANSWER: Final = struct.Struct("<IQBBH")
_DECODE_ERRORS: Final = (ValueError, TypeError, AttributeError, cbor2.CBORError, RecursionError, OverflowError,
                         MemoryError)


def request_bytes_max(config: Config) -> int:
    """Return the largest request, without its length, that a node with this configuration takes."""
    return config.message_bytes_max + REQUEST_OVERHEAD_BYTES


class TooManyCommands(MalformedMessage):
    """A PROPOSE_MANY with more commands than this node takes at once. It is whole and has an id, so it is answered."""

    def __init__(self, id: int, message: str) -> None:  # noqa: A002  the word of the protocol
        super().__init__(message)
        self.id = id


class Op(enum.IntEnum):
    """The kinds of requests that a client sends."""

    PROPOSE = 1
    PROPOSE_MANY = 2
    QUERY = 3
    STATUS = 4
    EXPLAIN = 5
    TRANSFER = 6
    RECONFIGURE = 7
    SNAPSHOT = 8
    ACCEPT_LOSS = 9


class ResultCode(enum.IntEnum):
    """The ways in which a request ends. Fields in brackets are the answer's body, a CBOR list; OK has the value."""

    OK = 0
    NOT_LEADER = 1
    """[leader or None, address or None]: without effect."""
    REJECTED = 2
    """[name of a ``RejectReason``, detail]: without effect."""
    UNKNOWN = 3
    """[first index, last index, detail]: may or may not take effect."""
    FAULTED = 4
    """[reason]: this node has stopped for good."""
    USAGE = 5
    """[sentence]: this group's state machine cannot serve the request, or its result cannot be encoded."""
    MALFORMED = 6
    """[sentence]: the request could not be read; the node closes the connection."""


_LEVELS: Final = (Read.INDEX, Read.LEASE, Read.LOG, Read.UNSAFE)
_OPS: Final = frozenset(map(int, Op))
_BARE: Final = frozenset((Op.STATUS, Op.EXPLAIN, Op.SNAPSHOT, Op.ACCEPT_LOSS))


@attrs.frozen
class MembershipPlan:
    """A membership to be reached: ids to addresses. ``priorities`` of None leaves the priorities as they are."""

    voters: Mapping[str, str]
    learners: Mapping[str, str]
    priorities: Mapping[str, int] | None = None


@attrs.define
class Request:
    """One request. ``commands`` holds the command, the commands or the query; the others use their own field."""

    id: int
    op: Op
    group: int = 1
    timeout_ms: int = 0
    """Time that the node may take; 0: its own default."""
    level: Read = Read.INDEX
    commands: Sequence[bytes] = ()
    target: str | None = None
    plan: MembershipPlan | None = None


@attrs.define
class Answer:
    """One answer: its value if it is OK, else the list of its fields."""

    id: int
    result: ResultCode
    value: Any = None


class Blocks:
    """Splits the bytes of one connection into blocks, by their lengths. Holds at most one unfinished block."""

    __slots__ = ("_buffer", "_bytes_max", "_due")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._due = _LENGTH.size

    @property
    def unfinished_bytes(self) -> int:
        """Bytes kept of the block that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """Return every block that ``data`` completes. Raises ``MalformedMessage`` for a length beyond the limit."""
        buffer = self._buffer
        buffer += data
        blocks: list[bytes] = []
        offset, end = 0, len(buffer)
        while offset + self._due <= end:
            (size,) = _LENGTH.unpack_from(buffer, offset)
            if size > self._bytes_max:
                raise MalformedMessage(f"a block of {size} bytes; at most {self._bytes_max} are taken")
            stop = offset + _LENGTH.size + size
            if stop > end:
                self._due = _LENGTH.size + size
                assert self._due > end - offset, "the rest has not come"
                break
            blocks.append(bytes(buffer[offset + _LENGTH.size : stop]))
            offset = stop
            self._due = _LENGTH.size
        del buffer[:offset]
        return blocks


# --- requests ------------------------------------------------------------------------------------------------


def encode_request(request: Request) -> bytes:
    """Return the request as bytes, with its length. Raises ``UsageError`` for what the format cannot carry."""
    op = request.op
    body: list[bytes] = []
    if op in (Op.PROPOSE, Op.QUERY):
        body.append(request.commands[0])
    elif op is Op.PROPOSE_MANY:
        count = len(request.commands)
        body.append(struct.pack(f"<I{count}I", count, *map(len, request.commands)))
        body.extend(request.commands)
    elif op is Op.TRANSFER:
        body.append(cbor2.dumps(request.target))
    elif op is Op.RECONFIGURE:
        plan = request.plan
        assert plan is not None
        priorities = None if plan.priorities is None else dict(plan.priorities)
        body.append(cbor2.dumps([dict(plan.voters), dict(plan.learners), priorities]))
    else:
        assert op in _BARE, "each request carries what its kind has"
    size = _REQUEST.size + sum(map(len, body))
    try:
        head = _PREFIXED_REQUEST.pack(
            size, request.id, request.group, op, _LEVELS.index(request.level), 0, request.timeout_ms)
    except struct.error as error:
        raise UsageError(f"a request cannot carry {request.timeout_ms=} or {size} bytes: {error}") from error
    return b"".join((head, *body))


def decode_request(block: bytes, commands_max: int) -> Request:
    """Decode a request from a block. Raises ``MalformedMessage``, or its kind ``TooManyCommands``."""
    if len(block) < _REQUEST.size:
        raise MalformedMessage(f"a request of {len(block)} bytes; the least is {_REQUEST.size}")
    number, group, op, level, zero, timeout_ms = _REQUEST.unpack_from(block)
    if op not in _OPS or level >= len(_LEVELS) or zero:
        raise MalformedMessage(f"a request breaks a rule: {op=} {level=} {zero=}")
    request = Request(number, Op(op), group, timeout_ms, _LEVELS[level])
    body = block[_REQUEST.size :]
    if request.op in (Op.PROPOSE, Op.QUERY):
        request.commands = (body,)
    elif request.op is Op.PROPOSE_MANY:
        request.commands = _take_commands(number, body, commands_max)
    elif request.op in _BARE:
        if body:
            raise MalformedMessage(f"{request.op.name} carries nothing, got {len(body)} bytes")
    elif request.op is Op.TRANSFER:
        request.target = _take_target(body)
    else:
        request.plan = _take_plan(body)
    return request


def _take_commands(number: int, body: bytes, commands_max: int) -> list[bytes]:
    if len(body) < _LENGTH.size:
        raise MalformedMessage("PROPOSE_MANY without a count")
    (count,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size * (1 + count)
    if count > commands_max:
        raise TooManyCommands(number, f"PROPOSE_MANY of {count} commands; at most {commands_max} are taken")
    if not count or start > len(body):
        raise MalformedMessage(f"PROPOSE_MANY of {count} commands in {len(body)} bytes")
    lengths = struct.unpack_from(f"<{count}I", body, _LENGTH.size)
    if start + sum(lengths) != len(body):
        raise MalformedMessage("lengths of PROPOSE_MANY do not add up to its body")
    commands = []
    for length in lengths:
        commands.append(body[start : start + length])
        start += length
    assert start == len(body) and len(commands) == count, "commands fill their body"
    return commands


def _load(body: bytes) -> Any:
    if len(body) > PLAN_BYTES_MAX:
        raise MalformedMessage(f"a CBOR body of {len(body)} bytes; at most {PLAN_BYTES_MAX} are taken")
    try:
        return cbor2.loads(body)
    except _DECODE_ERRORS as error:
        raise MalformedMessage(f"not CBOR: {error}") from error


def _take_target(body: bytes) -> str | None:
    target = _load(body)
    if target is not None and type(target) is not str:
        raise MalformedMessage("TRANSFER names a node or nobody")
    return target


def _take_plan(body: bytes) -> MembershipPlan:
    fields = _load(body)
    if type(fields) is not list or len(fields) != 3:
        raise MalformedMessage("RECONFIGURE has three fields")
    voters, learners, priorities = fields
    return MembershipPlan(
        _checked(voters, str), _checked(learners, str), None if priorities is None else _checked(priorities, int))


def _checked(mapping: Any, kind: type) -> dict[str, Any]:
    if type(mapping) is not dict or not all(type(k) is str and k and type(v) is kind for k, v in mapping.items()):
        raise MalformedMessage(f"RECONFIGURE maps node ids to {kind.__name__}")
    return mapping


# --- answers -------------------------------------------------------------------------------------------------


def encode_answer(answer: Answer) -> bytes:
    """Return the answer as bytes, with its length. If its value cannot be encoded, it becomes a USAGE that says that
    the request took effect."""
    result, body = answer.result, b""
    try:
        body = cbor2.dumps(answer.value)
        problem = f"is too large ({len(body)} bytes)" if len(body) + _ANSWER.size > ANSWER_BYTES_MAX else ""
    except Exception as error:  # noqa: BLE001 - the value is the user's, and so is code that runs while it is encoded
        said = str(error).encode("utf-8", "backslashreplace").decode()
        problem = f"cannot be CBOR ({type(error).__name__}: {said})"
    if problem:
        result = ResultCode.USAGE
        body = cbor2.dumps([
            f"the request was carried out, but its result, a {type(answer.value).__name__}, {problem}: "
            "return None, bool, int, float, str, bytes, or lists and dicts of these"])
    assert _ANSWER.size + len(body) <= ANSWER_BYTES_MAX, "a client takes no more"
    return _PREFIXED_ANSWER.pack(_ANSWER.size + len(body), answer.id, result, 0, 0) + body


def decode_answer(block: bytes) -> Answer:
    """Decode an answer from a block. Raises ``MalformedMessage``."""
    if len(block) < _ANSWER.size:
        raise MalformedMessage(f"an answer of {len(block)} bytes; the least is {_ANSWER.size}")
    number, result, zero, zero_too = _ANSWER.unpack_from(block)
    if zero or zero_too or result > max(ResultCode):
        raise MalformedMessage(f"an answer breaks a rule: {result=} {zero=} {zero_too=}")
    try:
        value = cbor2.loads(block[_ANSWER.size :])
    except _DECODE_ERRORS as error:
        raise MalformedMessage(f"not CBOR: {error}") from error
    answer = Answer(number, ResultCode(result), value)
    if answer.result is not ResultCode.OK:
        to_error(answer)  # raises for fields that do not fit
    return answer


def failure(number: int, error: RaftError) -> Answer:
    """Return the answer that tells of an error. ``to_error`` is its inverse, but for errors such as
    ``StorageError``."""
    if isinstance(error, NotLeader):
        return Answer(number, ResultCode.NOT_LEADER, [error.leader, error.address])
    if isinstance(error, Rejected):
        return Answer(number, ResultCode.REJECTED, [error.reason.name, error.detail])
    if isinstance(error, Unknown):
        return Answer(number, ResultCode.UNKNOWN, [error.first, error.last, error.detail])
    if isinstance(error, UsageError):
        return Answer(number, ResultCode.USAGE, [str(error)])
    if isinstance(error, MalformedMessage):
        return Answer(number, ResultCode.MALFORMED, [str(error)])
    return Answer(number, ResultCode.FAULTED, [str(error)])


_FIELDS: Final[dict[ResultCode, tuple[tuple[type, ...], ...]]] = {
    ResultCode.NOT_LEADER: ((str, type(None)), (str, type(None))),
    ResultCode.REJECTED: ((str,), (str,)),
    ResultCode.UNKNOWN: ((int,), (int,), (str,)),
    ResultCode.FAULTED: ((str,),),
    ResultCode.USAGE: ((str,),),
    ResultCode.MALFORMED: ((str,),),
}


_KINDS: Final[dict[RejectReason, type[Busy | NotAllowed]]] = {
    RejectReason.BUSY: Busy, RejectReason.NOT_ALLOWED: NotAllowed}


def to_error(answer: Answer) -> RaftError:
    """Return the error that an answer other than OK means to the caller. Raises ``MalformedMessage`` for fields that do
    not fit."""
    fields, kinds = answer.value, _FIELDS[answer.result]
    if type(fields) is not list or len(fields) != len(kinds) or not all(map(_is_one_of, fields, kinds)):
        raise MalformedMessage(f"an answer {answer.result.name} with other fields than it has")
    if answer.result is ResultCode.NOT_LEADER:
        return NotLeader(*fields)
    if answer.result is ResultCode.REJECTED:
        name, detail = fields
        if name not in RejectReason.__members__:
            raise MalformedMessage(f"a request was rejected for an unknown reason, {name!r}")
        reason = RejectReason[name]
        kind = _KINDS.get(reason)
        return Rejected(reason, detail) if kind is None else kind(detail)
    if answer.result is ResultCode.UNKNOWN:
        return Unknown(*fields)
    if answer.result is ResultCode.FAULTED:
        return Faulted(*fields)
    return UsageError(*fields)


def _is_one_of(field: object, kinds: tuple[type, ...]) -> bool:
    return type(field) in kinds
