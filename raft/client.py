"""A client of a group: finds the leader, follows it, and asks again if that can do no harm.

The one rule: a request is sent again only if it surely had no effect, or can have none. A write ends in ``Unknown`` if
its connection broke after it left, or its answer did not come in time: only the caller can decide whether doing it
twice is harmless. A shell around ``clientwire``; it knows addresses and answers, no terms and no logs.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random, SystemRandom
from typing import Any, Final, Generic, TypeAlias, TypedDict, Unpack, cast, overload

import attrs
import trio
from trio.abc import Stream

from raft import arguments
from raft.clientwire import (
    ANSWER_BYTES_MAX,
    LENGTH_BYTES,
    Answer,
    Blocks,
    MembershipPlan,
    Op,
    Request,
    ResultCode,
    decode_answer,
    encode_request,
    to_error,
)
from raft.config import Read
from raft.errors import (
    ConfigError,
    Faulted,
    HandshakeRefused,
    MalformedMessage,
    NotLeader,
    RaftError,
    Rejected,
    RejectReason,
    Unknown,
    UsageError,
)
from raft.groups import DEFAULT_GROUP, group_number
from raft.handshake import STREAM_ERRORS, Connector, connect_tcp, greet, split_address, start_tls
from raft.hello import Hello, Lane
from raft.membership import Desired, illegal
from raft.statemachine import (
    AnswerT_co,
    CodedMachine,
    CommandT,
    CommandT_contra,
    EntryMachine,
    ResultT_co,
    StateMachine,
    codec_of,
)
from raft.tls import Contexts, TLSConfig
from raft.wakeup import Bell

TIMEOUT_MS: Final = 10_000
RECONFIGURE_TIMEOUT_MS: Final = 70_000
"""Default timeout of ``reconfigure``. Above the node's own, so that the node's answer comes first."""
CONNECT_TIMEOUT_MS: Final = 1_000
BACKOFF_MIN_MS: Final = 20
BACKOFF_MAX_MS: Final = 500
SLACK_MS: Final = 100
"""Time that a client waits longer than the node, so that the node's more precise answer can come."""
PAUSE_MIN_MS: Final = 10
PAUSE_MAX_MS: Final = 100
"""Longest pause between attempts. Pauses double from ``PAUSE_MIN_MS``, with jitter."""
READ_PATIENCE_MS: Final = 2_000
"""Time without an answer after which a read is asked elsewhere, as repeating it is harmless. It doubles each time, so
that a read that is slow everywhere is answered too."""
TIMEOUT_MS_MAX: Final = 0xFFFF_FFFF
"""Largest timeout that a request can carry. A client that waits longer counts the rest itself."""
NO_END_MS: Final = 1 << 62
"""Patience for a snapshot: no other node is asked, since the first one is writing it."""
REQUESTS_MAX: Final = 1_024
"""Requests on one connection without an answer; more wait here."""
_RECEIVE_BYTES: Final = 256 << 10

OpenStream: TypeAlias = Callable[[str], Awaitable[tuple[Stream, bytearray, Hello]]]
"""Opens a greeted stream to an address. Returns it with the bytes that followed the node's hello, and that hello."""
_AGAIN: Final = frozenset({
    RejectReason.TRANSFERRING, RejectReason.STOPPED, RejectReason.INSTALLING, RejectReason.BUSY,
    RejectReason.LEADER_LOST, RejectReason.DISK_FULL, RejectReason.NO_SUCH_GROUP,
    RejectReason.OVERWRITTEN, RejectReason.NO_LEASE,
})
"""Refusals without effect after which another attempt may succeed, perhaps elsewhere."""


class ConnectOptions(TypedDict, total=False):
    """Options of ``connect``, besides addresses and the machine's class."""

    cluster: str
    group: str
    tls: TLSConfig | ssl.SSLContext | None
    timeout_ms: int
    dial: Connector


@overload
def connect(
    addresses: Sequence[str], *, machine: type[CodedMachine[CommandT, ResultT_co, AnswerT_co]],
    **options: Unpack[ConnectOptions],
) -> AbstractAsyncContextManager[Client[CommandT, ResultT_co, AnswerT_co]]: ...


@overload
def connect(
    addresses: Sequence[str], *,
    machine: type[StateMachine[bytes, ResultT_co, AnswerT_co] | EntryMachine[ResultT_co, AnswerT_co]],
    **options: Unpack[ConnectOptions],
) -> AbstractAsyncContextManager[Client[bytes, ResultT_co, AnswerT_co]]: ...


@overload
def connect(
    addresses: Sequence[str], *, machine: None = None, **options: Unpack[ConnectOptions],
) -> AbstractAsyncContextManager[Client[bytes, Any, Any]]: ...


@asynccontextmanager
async def connect(
    addresses: Sequence[str], *, machine: type[Any] | None = None, cluster: str = "default", group: str = DEFAULT_GROUP,
    tls: TLSConfig | ssl.SSLContext | None = None, timeout_ms: int = TIMEOUT_MS, dial: Connector = connect_tcp,
) -> AsyncIterator[Client[Any, Any, Any]]:
    """Yield a client of ``group`` while the block runs. It dials nobody before the first request.

    ``addresses`` (``host:port``) are asked first; a leader elsewhere is followed. ``machine`` is the class of the
    group's state machine: it gives the types, and its codec is called here. ``timeout_ms`` is the default for each
    request, retries included. Raises ``ConfigError`` for a bad address or timeout.
    """
    if isinstance(addresses, (str, bytes)) or not isinstance(addresses, Iterable):
        raise ConfigError("addresses", addresses, "must be a list of host:port")
    known = tuple(addresses)
    if not known:
        raise ConfigError("addresses", known, "must name at least one node")
    for address in known:
        split_address(address)
    if type(timeout_ms) is not int or timeout_ms < 1:
        raise ConfigError("timeout_ms", timeout_ms, "must be a whole number above 0")
    if machine is not None and not callable(getattr(machine, "apply", getattr(machine, "apply_entries", None))):
        raise UsageError(f"machine={machine!r:.80}: must be the class of the group's state machine")
    arguments.a_name("cluster", cluster)
    arguments.functions(dial=dial)
    if not isinstance(tls, ssl.SSLContext):
        arguments.kinds(tls=(tls, TLSConfig))
    hello = Hello(cluster=cluster, node="", incarnation=b"", lane=Lane.CLIENT)
    contexts = Contexts(tls) if isinstance(tls, TLSConfig) else tls

    async def open_stream(address: str) -> tuple[Stream, bytearray, Hello]:
        stream, received = await dial(address), bytearray()
        try:
            if contexts is not None:
                context = contexts.client if isinstance(contexts, Contexts) else contexts
                stream = await start_tls(stream, context, server=False)
            theirs = await greet(stream, hello, received)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream, received, theirs

    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            codec = codec_of(machine)
            yield Client(known, group_number(group), timeout_ms, open_stream, nursery,
                         None if codec is None else codec.encode)
        except BaseException as error:  # noqa: BLE001  # raised again below
            failure = error
        nursery.cancel_scope.shield = failure is not None  # else a cancellation from outside would win
        nursery.cancel_scope.cancel()
    if failure is not None:  # as the caller's block raised it, not inside this nursery's group
        raise failure


class Client(Generic[CommandT_contra, ResultT_co, AnswerT_co]):
    """A client of one group, made by ``connect``. Many tasks may call it at once; it has one connection to each node.

    ``Client[Command, Result, Answer]`` has the types of the machine that ``connect`` was given. Results and answers
    come as CBOR: numbers, text, bytes, ``None``, lists, and dicts of these; a tuple comes as a list.

    Every method raises ``Rejected`` (no effect), ``Unknown`` (writes only: it may have taken effect, or still may),
    ``NotLeader`` (no leader was found in time; no effect), ``Faulted`` (reads only), ``HandshakeRefused`` (all nodes
    refuse this client), or ``UsageError`` (the group's state machine cannot serve it).
    """

    def __init__(
        self, addresses: tuple[str, ...], group: int, timeout_ms: int,
        open_stream: OpenStream, nursery: trio.Nursery, encode: Callable[[Any], bytes] | None = None,
    ) -> None:
        self.addresses = addresses
        self._encode = encode
        self.leader_address: str | None = None
        """Address at which the leader was last seen."""
        self._group, self._timeout_ms = group, timeout_ms
        self._open_stream, self._nursery = open_stream, nursery
        self._links: dict[str, _Link] = {}
        self._random = Random(SystemRandom().getrandbits(64))
        self._place = 0

    # --- writing and reading

    async def propose(self, command: CommandT_contra, *, timeout_ms: int | None = None) -> ResultT_co:
        """Replicate and apply ``command``. Return what ``apply`` returned on the leader."""
        request = Request(0, Op.PROPOSE, self._group, commands=(self._encoded(command),))
        return cast("ResultT_co", await self._write(request, timeout_ms))

    async def propose_many(
        self, commands: Sequence[CommandT_contra], *, timeout_ms: int | None = None
    ) -> list[ResultT_co]:
        """Replicate and apply commands in order. Return all results, or raise one error for the whole call. Not
        atomic."""
        data = [self._encoded(command) for command in arguments.listed(commands)]
        if not data:
            await trio.lowlevel.checkpoint()
            return []
        results = await self._write(Request(0, Op.PROPOSE_MANY, self._group, commands=data), timeout_ms)
        assert isinstance(results, list)
        return results

    def _encoded(self, command: Any) -> bytes:
        return arguments.data("a command", command if self._encode is None else self._encode(command))

    async def query(
        self, data: bytes, *, level: Read = Read.INDEX, address: str | None = None, timeout_ms: int | None = None
    ) -> AnswerT_co:
        """Return the answer of the state machine's ``query(data)``, as fresh as ``level`` says.

        Asks the leader, or the node at ``address``, which may be a follower, again and again until time is up.
        """
        request = Request(0, Op.QUERY, self._group, level=arguments.freshness(level),
                          commands=(arguments.data("what is asked", data),))
        return cast("AnswerT_co", await self._read(request, address, timeout_ms))

    # --- the group

    async def status(self, address: str | None = None, *, timeout_ms: int | None = None) -> dict[str, Any]:
        """Return ``Status.as_dict`` of the node at ``address``, or of the first that answers."""
        found = await self._read(Request(0, Op.STATUS, self._group), address, timeout_ms, anybody=True)
        assert isinstance(found, dict)
        return found

    async def explain(self, address: str | None = None, *, timeout_ms: int | None = None) -> list[str]:
        """Return sentences that say what is wrong with the node at ``address``, or with the first that answers."""
        return [sentence for _, sentence in await self.diagnose(address, timeout_ms=timeout_ms)]

    async def diagnose(self, address: str | None = None, *, timeout_ms: int | None = None) -> list[tuple[str, str]]:
        """Return (name, sentence) of each situation that ``explain`` tells."""
        pairs = await self._read(Request(0, Op.EXPLAIN, self._group), address, timeout_ms, anybody=True)
        return [(name, sentence) for name, sentence in pairs]

    async def transfer_leadership(self, target: str | None = None, *, timeout_ms: int | None = None) -> None:
        """Hand leadership to the voter ``target``, or to the best placed one. Returns when it leads."""
        if target is not None:
            arguments.a_name("target", target)
        await self._write(Request(0, Op.TRANSFER, self._group, target=target), timeout_ms)
        self.leader_address = None

    async def reconfigure(
        self, voters: Mapping[str, str], learners: Mapping[str, str] | None = None, *,
        priorities: Mapping[str, int] | None = None, timeout_ms: int = RECONFIGURE_TIMEOUT_MS,
    ) -> None:
        """Move the group to this membership (id to address). Asking twice is harmless: this names a goal, not a
        step."""
        ranks = None if priorities is None else arguments.copied("priorities", priorities)
        plan = MembershipPlan(
            arguments.copied("voters", voters), arguments.copied("learners", learners or {}), ranks)
        if why := illegal(Desired(plan.voters, plan.learners, ranks or {})):
            raise Rejected(RejectReason.ILLEGAL_CHANGE, why)
        await self._write(Request(0, Op.RECONFIGURE, self._group, plan=plan), timeout_ms)

    async def take_snapshot(self, address: str | None = None, *, timeout_ms: int | None = None) -> int:
        """Have the node at ``address``, or the leader, take a snapshot now. Return the index that it covers."""
        index = await self._read(Request(0, Op.SNAPSHOT, self._group), address, timeout_ms)
        assert isinstance(index, int)
        return index

    async def accept_loss(self, address: str, *, timeout_ms: int | None = None) -> bool:
        """Let the node at ``address`` vote and count again although it lost what it had acknowledged. Return False if
        it had lost nothing. See ``Node.accept_loss``."""
        split_address(address)  # raises for None: no node must be chosen by chance
        return bool(await self._read(Request(0, Op.ACCEPT_LOSS, self._group), address, timeout_ms))

    # --- asking until it is answered

    async def _write(self, request: Request, timeout_ms: int | None) -> Any:
        """Ask the leader to write. Sends again only after an attempt that surely had no effect."""
        return await self._ask(request, None, timeout_ms, repeatable=False)

    async def _read(
        self, request: Request, address: str | None, timeout_ms: int | None, *, anybody: bool = False
    ) -> Any:
        """Ask until there is an answer, whatever happened: once or twice has the same effect."""
        if address is not None:
            split_address(address)
        return await self._ask(request, address, timeout_ms, repeatable=True, anybody=anybody)

    async def _ask(
        self, request: Request, address: str | None, timeout_ms: int | None, *, repeatable: bool, anybody: bool = False
    ) -> Any:
        deadline = trio.current_time() + (
            self._timeout_ms if timeout_ms is None else arguments.timeout(timeout_ms)) / 1e3
        attempts, sender, patience_ms = 0, "", READ_PATIENCE_MS if request.op is not Op.SNAPSHOT else NO_END_MS
        while True:
            where = address or self.leader_address or self.addresses[self._place % len(self.addresses)]
            now = trio.current_time()
            until = min(deadline, now + patience_ms / 1e3) if repeatable else deadline
            try:
                answer = await self._link(where).ask(request, until)
            except _NotSent as problem:
                error: RaftError = problem.refusal or Rejected(RejectReason.TIMED_OUT, f"{where}: {problem}")
                if self._refused_by_all(address):
                    raise error from None
                self._ask_another(where, sender)
                sender = ""
            except _NoAnswer as problem:
                self._ask_another(where, sender)
                sender = ""
                patience_ms *= 2
                if not repeatable:
                    raise Unknown(detail=f"{where}: {problem}") from None
                error = Rejected(RejectReason.TIMED_OUT, f"{where}: {problem}")
            else:
                if answer.result is ResultCode.OK:
                    if address is None and not anybody:
                        self.leader_address = where
                    return answer.value
                error = to_error(answer)
                if not _worth_another(error, request.op):
                    raise error
                hint = error.address if isinstance(error, NotLeader) else None
                if hint and hint != where and not sender:
                    self.leader_address, sender = hint, where
                    continue
                sender = ""
                self._ask_another(where)
            pause = min(PAUSE_MAX_MS, PAUSE_MIN_MS << min(attempts, 10)) / 1e3 * (0.5 + self._random.random() / 2)
            attempts += 1
            if trio.current_time() + pause >= deadline:
                raise error
            await trio.sleep(pause)

    def _link(self, address: str) -> _Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = _Link(address, self._open_stream, self._nursery, self._random)
        return link

    def _ask_another(self, address: str, sender: str = "") -> None:
        """Ask another node next. ``sender``, which named ``address`` as the leader, is not asked next either."""
        if self.leader_address is not None and address == self.leader_address:
            self.leader_address = None
        elif address == self.addresses[self._place % len(self.addresses)]:
            self._place += 1
        if sender == self.addresses[self._place % len(self.addresses)]:
            self._place += 1

    def _refused_by_all(self, address: str | None) -> bool:
        asked = self.addresses if address is None else (address,)
        return all(name in self._links and self._links[name].refusal for name in asked)


def _worth_another(error: RaftError, op: Op) -> bool:
    """Return whether an answer says that nothing happened and that another attempt may succeed."""
    if isinstance(error, Rejected):
        if error.reason is RejectReason.TIMED_OUT:
            return op is Op.QUERY  # that node may be cut off; another may confirm the read
        return error.reason in _AGAIN and (op is not Op.SNAPSHOT or error.reason is not RejectReason.DISK_FULL)
    return isinstance(error, (NotLeader, Faulted))


class _NotSent(Exception):
    """The request never left: no connection, or no time to use it. ``refusal`` is set if the node refused the
    handshake."""

    def __init__(self, why: str, refusal: HandshakeRefused | None = None) -> None:
        super().__init__(why)
        self.refusal = refusal


class _NoAnswer(Exception):
    """The request left, or part of it, and no answer came."""


@attrs.define(eq=False)
class _Waiting:
    """One request on its way."""

    data: bytes
    done: trio.Event = attrs.Factory(trio.Event)
    answer: Answer | None = None
    sent: bool = False


class _Link:
    """The connection to one address, made when it is needed."""

    def __init__(
        self, address: str, open_stream: OpenStream, nursery: trio.Nursery, random: Random,
    ) -> None:
        self.refusal: HandshakeRefused | None = None
        """Refusal of the last handshake, if it was refused."""
        self._address, self._open_stream, self._nursery, self._random = address, open_stream, nursery, random
        self._opening = trio.Lock()
        self._room = trio.Event()
        self._open = False
        self._problem = "not connected"
        self._failures, self._retry_at = 0, 0.0
        self._request_bytes_max = 0
        self._number = 0
        self._pending: dict[int, _Waiting] = {}
        self._outbox: list[_Waiting] = []
        self._bell = Bell()

    async def ask(self, request: Request, deadline: float) -> Answer:
        """Send and wait for the answer. Raises ``_NotSent``, ``_NoAnswer``, and ``UsageError`` for what cannot be sent.
        Raises ``Rejected`` for a request above this node's limit, which would end the connection for all requests.
        """
        waiting: _Waiting | None = None
        with trio.move_on_at(deadline + SLACK_MS / 1e3):
            while not self._open or len(self._pending) >= REQUESTS_MAX:
                if self._open:
                    await self._room.wait()
                else:
                    async with self._opening:
                        if not self._open:
                            await self._connect()
            self._number = number = (self._number + 1) & 0xFFFF_FFFF
            request.id, request.timeout_ms = number, min(
                TIMEOUT_MS_MAX, max(1, int((deadline - trio.current_time()) * 1e3)))
            data = encode_request(request)
            size = len(data) - LENGTH_BYTES
            if 0 < self._request_bytes_max < size:
                limit = f"{self._address} takes {self._request_bytes_max}"
                raise Rejected(RejectReason.TOO_LARGE, f"a request of {size} bytes; {limit}")
            self._pending[number] = waiting = _Waiting(data)
            self._outbox.append(waiting)
            self._bell.ring()
            try:
                await waiting.done.wait()
            finally:
                if not waiting.sent and waiting in self._outbox:
                    self._outbox.remove(waiting)
                if self._pending.pop(number, None) is not None and len(self._pending) == REQUESTS_MAX - 1:
                    self._make_room()
        if waiting is None:
            raise _NotSent("no connection in time")
        if waiting.answer is not None:
            return waiting.answer
        why = self._problem if waiting.done.is_set() else "no answer in time"
        raise _NoAnswer(why) if waiting.sent else _NotSent(why)

    def _make_room(self) -> None:
        """Wake the requests that wait for a place, to look again."""
        self._room.set()
        self._room = trio.Event()

    async def _connect(self) -> None:
        """Connect and greet. Raises ``_NotSent``, at once if the last failure is recent, and ``UsageError`` once the
        client is closed."""
        if self._nursery.cancel_scope.cancel_called:
            raise UsageError("this client is closed: its block has ended")
        if trio.current_time() < self._retry_at:
            raise _NotSent(self._problem, self.refusal)
        try:
            with trio.fail_after(CONNECT_TIMEOUT_MS / 1e3):
                stream, received, hello = await self._open_stream(self._address)
        except trio.TooSlowError:
            self._fail(f"no connection within {CONNECT_TIMEOUT_MS} ms", None)
        except HandshakeRefused as refusal:
            self._fail(f"refused: {refusal.reason}", refusal)
        except (MalformedMessage, *STREAM_ERRORS) as error:
            self._fail(str(error) or type(error).__name__, None)
        else:
            self._open, self._failures, self.refusal = True, 0, None
            self._request_bytes_max = hello.request_bytes_max
            self._bell = Bell()
            self._nursery.start_soon(self._run, stream, received)

    def _fail(self, problem: str, refusal: HandshakeRefused | None) -> None:
        delay = min(BACKOFF_MAX_MS, BACKOFF_MIN_MS << min(self._failures, 10)) / 1e3
        self._failures += 1
        self._retry_at = trio.current_time() + delay * (0.5 + self._random.random() / 2)
        self._problem, self.refusal = problem, refusal
        raise _NotSent(problem, refusal)

    async def _run(self, stream: Stream, received: bytearray) -> None:
        """Serve one connection from its greeting to its end, and then tell all requests under way why it ended."""
        problem = "the connection was closed"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, stream, nursery.cancel_scope)
                problem = await self._receive(stream, received)
                nursery.cancel_scope.cancel()
        finally:
            self._open, self._problem = False, problem
            for waiting in self._pending.values():
                waiting.done.set()
            self._pending, self._outbox = {}, []
            self._make_room()
            await trio.aclose_forcefully(stream)

    async def _receive(self, stream: Stream, received: bytes | bytearray) -> str:
        """Hand answers to the requests that wait. Return why no more answers come."""
        blocks = Blocks(ANSWER_BYTES_MAX)
        try:
            while True:
                for block in blocks.feed(received):
                    answer = decode_answer(block)
                    if answer.result is ResultCode.MALFORMED:
                        return f"the node could not read a request: {to_error(answer)}"
                    waiting = self._pending.get(answer.id)
                    if waiting is not None:
                        waiting.answer = answer
                        waiting.done.set()
                received = await stream.receive_some(_RECEIVE_BYTES)
                if not received:
                    return "the node closed the connection"
        except MalformedMessage as error:
            return f"the node sent what it must not: {error}"
        except STREAM_ERRORS as error:
            return f"the connection broke: {str(error) or type(error).__name__}"

    async def _send(self, stream: Stream, connection: trio.CancelScope) -> None:
        """Send everything that waits, in one piece. A request counts as sent from its first byte on."""
        try:
            while True:
                await self._bell.wait()
                batch, self._outbox = self._outbox, []
                for waiting in batch:
                    waiting.sent = True
                await stream.send_all(b"".join([waiting.data for waiting in batch]))
        except STREAM_ERRORS:
            connection.cancel()
