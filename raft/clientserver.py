"""Serves one client's connection on a node: reads requests, lets the node carry them out, sends the answers.

A shell around ``clientwire``. Requests of one connection run side by side and are answered in any order; a client that
needs an order awaits an answer or sends PROPOSE_MANY. At most ``REQUESTS_MAX`` requests, and ``REQUEST_BYTES_MAX``
bytes of them, run at once, and ``ANSWERS_BYTES_MAX`` bytes of answers wait to be taken; beyond that the connection is
not read and its queries are not asked. Bad input ends that connection, with a reason, and nothing else.
Knows ``ServedNode``, not the node's insides; takes no decision that is the node's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import trio
from trio.abc import Stream

from raft.access import OWN_PROCESS_ONLY, Access
from raft.clientwire import (
    Answer,
    Blocks,
    Op,
    Request,
    ResultCode,
    TooManyCommands,
    decode_request,
    encode_answer,
    failure,
    request_bytes_max,
)
from raft.config import Config, Read
from raft.errors import (
    DiskFull,
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
from raft.explain import diagnose
from raft.handshake import STREAM_ERRORS, caller_of
from raft.hello import Hello
from raft.messages import SnapshotMeta
from raft.statemachine import query_of
from raft.status import Status
from raft.wakeup import Bell

REQUESTS_MAX: Final = 1_024
"""Requests of one connection that have no answer yet."""
REQUEST_BYTES_MAX: Final = 16 << 20
"""Bytes of commands in those requests; a single request may exceed it."""
ANSWERS_BYTES_MAX: Final = 16 << 20
"""Bytes of answers that the client of one connection has not taken yet; the last answer may exceed it."""
SEND_TIMEOUT_S: Final = 30.0
"""Time after which a client that takes no answers is disconnected."""
GOODBYE_S: Final = 1.0
_SEND_BYTES: Final = 256 << 10
"""Bytes sent at a time, each with its own timeout: a client that takes large answers slowly is not disconnected."""
_RECEIVE_BYTES: Final = 64 << 10
_PROPOSALS: Final = frozenset((Op.PROPOSE, Op.PROPOSE_MANY))
_CHANGES: Final = frozenset((Op.TRANSFER, Op.RECONFIGURE, Op.SNAPSHOT, Op.ACCEPT_LOSS))
_WRITES: Final = frozenset((Op.PROPOSE, Op.PROPOSE_MANY, Op.TRANSFER, Op.RECONFIGURE))

logger = logging.getLogger("raft.clientserver")

RunBlocking: TypeAlias = Callable[..., Awaitable[Any]]


class PendingProposal(Protocol):
    """A proposal that ``propose_nowait`` made, to be awaited or dropped."""

    def wait(self) -> Awaitable[object]: ...


class ServedNode(Protocol):
    """The part of a node that clients reach. Commands are bytes here, whatever the machine's codec."""

    @property
    def config(self) -> Config: ...
    @property
    def state_machine(self) -> object: ...
    def ask_machine(
        self, ask: Callable[[bytes], object], data: bytes, *, run_blocking: RunBlocking, timeout_ms: int | None = None,
    ) -> Awaitable[object]: ...
    def propose(self, command: bytes, timeout_ms: int | None = None) -> Awaitable[object]: ...
    @property
    def is_leader(self) -> bool: ...
    def propose_nowait(self, command: bytes) -> PendingProposal: ...
    def propose_many(self, commands: Sequence[bytes], timeout_ms: int | None = None) -> Awaitable[list[object]]: ...
    def read_barrier(self, level: Read = Read.INDEX, *, timeout_ms: int | None = None) -> Awaitable[None]: ...
    def status(self) -> Status: ...
    def transfer_leadership(self, target: str | None = None) -> Awaitable[None]: ...
    def reconfigure(
        self, voters: Mapping[str, str], learners: Mapping[str, str] | None = None, *,
        priorities: Mapping[str, int] | None = None,
    ) -> Awaitable[None]: ...
    def take_snapshot(self) -> Awaitable[SnapshotMeta]: ...
    def accept_loss(self) -> Awaitable[bool]: ...


def _hold_all(size: int) -> None:
    """Take an unfinished request of any size."""


async def serve_client(
    nodes: Mapping[int, ServedNode], config: Config, stream: Stream, hello: Hello, received: bytes,
    hold: Callable[[int], None] = _hold_all, *,
    run_blocking: RunBlocking = trio.to_thread.run_sync, access: Access | None = None,
) -> None:
    """Serve a client until it leaves or misbehaves. ``received`` holds the bytes that followed its hello.

    ``hold`` is told how many bytes of an unfinished request are kept, and raises ``MalformedMessage`` if that is more
    than there is room for beside other connections.

    ``nodes`` are this process's, by their group's number, and may change meanwhile; ``config`` sets the limits;
    ``run_blocking`` is for queries of threaded state machines; ``access`` says what this client may do, None: all.

    Does not close ``stream``. Raises no errors of the stream or the client. A client that leaves withdraws none of the
    commands that it has sent.
    """
    connection = _Connection(nodes, config, stream, hold, run_blocking, access)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.send_answers, nursery.cancel_scope)
        try:
            await connection.read_requests(nursery, received)
        except MalformedMessage as error:
            logger.warning("client %s is cut off: %s", hello.node or hello.address or "without a name", error)
            with trio.move_on_after(GOODBYE_S):
                await connection.say_goodbye(failure(0, error))
        except STREAM_ERRORS:
            pass
        nursery.cancel_scope.cancel()


class _Connection:
    """Requests under way on one connection, and answers waiting to be sent."""

    def __init__(
        self, nodes: Mapping[int, ServedNode], config: Config, stream: Stream, hold: Callable[[int], None],
        run_blocking: RunBlocking, access: Access | None,
    ) -> None:
        self._nodes, self._stream, self._hold, self._run_blocking = nodes, stream, hold, run_blocking
        self._access = access
        self._commands_max = config.proposals_pending_max
        self._blocks = Blocks(request_bytes_max(config))
        self._open = self._open_bytes = 0  # requests that have no answer on the wire
        self._answers: list[bytes] = []
        self._answered = self._answered_bytes = 0  # requests whose answers are in that list
        self._unsent = 0  # bytes of answers that the client has not taken
        self._held_up = trio.lowlevel.ParkingLot()
        self._asking = False  # a query is under way whose answer is not in that list yet
        self._due, self._room = Bell(), Bell()
        self._last = False
        self._said = trio.Event()

    # --- in

    async def read_requests(self, nursery: trio.Nursery, received: bytes | bytearray) -> None:
        """Read requests until the client leaves. Raises ``MalformedMessage`` or a stream's error."""
        while True:
            quick: list[tuple[int, PendingProposal, int]] = []
            for block in self._blocks.feed(received):
                size = len(block)
                while self._open >= REQUESTS_MAX or self._unsent > ANSWERS_BYTES_MAX or (
                        self._open and self._open_bytes + size > REQUEST_BYTES_MAX):
                    self._start(nursery, quick)
                    quick = []
                    await self._room.wait()
                self._open += 1
                self._open_bytes += size
                try:
                    request = decode_request(block, self._commands_max)
                except TooManyCommands as error:
                    self._put(failure(error.id, Rejected(RejectReason.TOO_LARGE, str(error))), size)
                    continue
                if (proposal := self._propose_nowait(request)) is not None:
                    quick.append((request.id, proposal, size))
                else:
                    nursery.start_soon(self._handle, request, size)
            self._start(nursery, quick)
            self._hold(self._blocks.unfinished_bytes)
            received = await self._stream.receive_some(_RECEIVE_BYTES)
            if not received:
                return

    def _start(self, nursery: trio.Nursery, proposals: list[tuple[int, PendingProposal, int]]) -> None:
        if proposals:
            nursery.start_soon(self._await_proposals, proposals)

    def _propose_nowait(self, request: Request) -> PendingProposal | None:
        """Propose without a task of its own, if the request has the node's own timeout. Return None if ``_carry_out``
        must do it."""
        node = self._nodes.get(request.group)
        if request.op is not Op.PROPOSE or node is None or 0 < request.timeout_ms < node.config.propose_timeout_ms:
            return None
        if self._refuses(Op.PROPOSE):
            return None
        try:
            return node.propose_nowait(request.commands[0])
        except RaftError:  # ``_carry_out`` waits for room, or says what is wrong
            return None

    def _refuses(self, op: Op) -> bool:
        """Return whether this is a command of a client, while only the node's own process may propose."""
        return self._access is not None and not self._access.client_proposals and op in _PROPOSALS

    # --- at work

    async def _await_proposals(self, proposals: list[tuple[int, PendingProposal, int]]) -> None:
        """Await all proposals of one receive in one task: a task for each would cost more than the proposal."""
        for number, proposal, size in proposals:
            try:
                value = await proposal.wait()
            except Faulted as error:
                answer = failure(number, _faulted(error, Op.PROPOSE, True))
            except RaftError as error:
                answer = failure(number, error)
            else:
                answer = Answer(number, ResultCode.OK, value)
            await self._put_when_taken(answer, size)

    async def _handle(self, request: Request, size: int) -> None:
        node = self._nodes.get(request.group)
        led = node is not None and node.is_leader
        if node is not None and request.op is Op.QUERY:
            await self._query(node, request, size)
            return
        try:
            answer = Answer(request.id, ResultCode.OK, await self._carry_out(request))
        except DiskFull as error:
            answer = failure(request.id, Rejected(RejectReason.DISK_FULL, str(error)))
        except Faulted as error:
            answer = failure(request.id, _faulted(error, request.op, led))
        except RaftError as error:
            answer = failure(request.id, error)
        await self._put_when_taken(answer, size)

    async def _query(self, node: ServedNode, request: Request, size: int) -> None:
        """Pass the barrier, then ask. Queries of one connection run one by one, each when its answer has room."""
        timeout_ms = request.timeout_ms or None
        try:
            ask = _query_of(node.state_machine)
            await node.read_barrier(request.level, timeout_ms=timeout_ms)
        except RaftError as error:
            self._put(failure(request.id, error), size)
            return
        while self._asking or self._unsent > ANSWERS_BYTES_MAX:
            await self._held_up.park()
        self._asking = True
        try:
            value = await node.ask_machine(
                ask, request.commands[0], run_blocking=self._run_blocking, timeout_ms=timeout_ms)
            answer = Answer(request.id, ResultCode.OK, value)
        except RaftError as error:
            answer = failure(request.id, error)
        finally:
            self._asking = False
        self._put(answer, size)
        self._held_up.unpark()

    async def _carry_out(self, request: Request) -> Any:
        """Return the value of the OK answer. Raises what the node raises."""
        node, op, timeout_ms = self._nodes.get(request.group), request.op, request.timeout_ms or None
        if self._refuses(op):
            raise NotAllowed(OWN_PROCESS_ONLY)
        if node is None:
            raise Rejected(RejectReason.NO_SUCH_GROUP, f"number {request.group}")
        if self._access is not None and op in _CHANGES and (
                why := self._access.change_refused(caller_of(self._stream), node.status().membership.members)):
            logger.warning("%s refused: %s", op.name.lower(), why)
            raise NotAllowed(why)
        if op is Op.PROPOSE:
            return await node.propose(request.commands[0], timeout_ms)
        if op is Op.PROPOSE_MANY:
            return await node.propose_many(request.commands, timeout_ms)
        if op is Op.STATUS:
            return node.status().as_dict()
        if op is Op.EXPLAIN:
            return [list(pair) for pair in diagnose(node.status())]
        if op is Op.TRANSFER:
            return await node.transfer_leadership(request.target)
        if op is Op.RECONFIGURE:
            plan = request.plan
            assert plan is not None
            return await node.reconfigure(plan.voters, plan.learners, priorities=plan.priorities)
        if op is Op.ACCEPT_LOSS:
            return await node.accept_loss()
        return (await node.take_snapshot()).index

    # --- out

    async def _put_when_taken(self, answer: Answer, size: int) -> None:
        """Queue an answer once the client has taken enough of the earlier ones."""
        while self._unsent > ANSWERS_BYTES_MAX:
            await self._held_up.park()
        self._put(answer, size)

    def _put(self, answer: Answer, size: int) -> None:
        data = encode_answer(answer)
        self._answers.append(data)
        self._unsent += len(data)
        self._answered += 1
        self._answered_bytes += size
        self._due.ring()

    async def say_goodbye(self, answer: Answer) -> None:
        """Send the answers that wait, and this last one."""
        self._last = True
        self._open += 1
        self._put(answer, 0)
        await self._said.wait()

    async def send_answers(self, connection: trio.CancelScope) -> None:
        """Send all answers that are ready, in one piece. Ends the connection if the client does not take them."""
        try:
            while not (self._last and not self._answers):
                await self._due.wait()
                data, count, size = b"".join(self._answers), self._answered, self._answered_bytes
                self._answers.clear()
                self._answered = self._answered_bytes = 0
                for start in range(0, len(data), _SEND_BYTES):
                    piece = data if len(data) <= _SEND_BYTES else memoryview(data)[start : start + _SEND_BYTES]
                    with trio.fail_after(SEND_TIMEOUT_S):
                        await self._stream.send_all(piece)
                self._unsent -= len(data)
                if self._held_up and self._unsent <= ANSWERS_BYTES_MAX:
                    self._held_up.unpark_all()
                self._open -= count
                self._open_bytes -= size
                self._room.ring()
        except (trio.TooSlowError, *STREAM_ERRORS):
            connection.cancel()
        self._said.set()


def _faulted(error: Faulted, op: Op, led: bool) -> RaftError:
    """Return the error to answer after a fault. A write is ``Unknown`` if this node may have stored it (``led``), else
    it had no effect."""
    if op not in _WRITES:
        return error
    return Unknown(detail=f"the leader faulted: {error}") if led else NotLeader(None, None)


def _query_of(machine: object) -> Callable[[bytes], object]:
    """Return ``query`` of a state machine. Its errors become ``UsageError``, and so does its absence."""
    query = query_of(machine)

    def ask(data: bytes) -> object:
        try:
            return query(data)
        except Exception as error:  # the user's code and the client's data: an error concerns this answer alone
            raise UsageError(f"query() raised {type(error).__name__}: {error}") from error

    return ask
