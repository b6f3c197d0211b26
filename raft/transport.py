"""Connections between the nodes of one cluster: who dials whom, who is let in, lanes and limits.

Each node dials each peer twice: a *control* lane for small messages and a *bulk* lane for frames and snapshot chunks,
so that a vote never waits behind a snapshot. A connection carries messages one way, from dialler to acceptor, and both
ends notice when it breaks. All of it runs in one trio thread. Messages may get lost, with a broken connection or a
full queue; the replica is told (``on_unreachable``) and probes anew.
Knows bytes, streams and node ids; nothing of terms, roles or what a message means.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, Final

import attrs
import trio
from trio.abc import Listener, Stream

from raft import wire
from raft.access import Caller
from raft.arguments import fits
from raft.config import Config
from raft.errors import ConfigError, MalformedMessage, UsageError
from raft.handshake import (
    STREAM_ERRORS,
    TLS_RECORD,
    Connector,
    PrefixedStream,
    caller_of,
    connect_tcp,
    greet,
    join_address,
    read_greeting,
    refuse,
    split_address,
    start_tls,
    tune_socket,
)
from raft.hello import (
    GREETING_BYTES_MAX,
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
from raft.hello import MAGIC as GREETING_MAGIC
from raft.inbound import Inbound, is_client, ping, places, whence, words
from raft.lives import NONE_MET, Met
from raft.messages import PeerMessage
from raft.outbox import Outbox
from raft.status import Refusal, RefusalKind
from raft.tls import Contexts, TLSConfig, check_certificate
from raft.wakeup import Bell

logger = logging.getLogger("raft.transport")

_RECEIVE_BYTES: Final = 1 << 20
HEARD_MAX: Final = 64
"""Connections beyond ``connections_max`` that are heard at one time, until they have said who they are."""
_REFUSALS_MAX: Final = 64
"""Refusals remembered for people. The number is bounded, as a stranger can make up names."""

OnMessage = Callable[[str, PeerMessage], None]
OnClient = Callable[[Stream, Hello, bytes, Callable[[int], None]], Awaitable[None]]


def _nothing(*_: object) -> None:
    return None


@attrs.frozen(kw_only=True)
class TransportLimits:
    """Limits of one process's connections, for all its groups. ``Config`` has the limits of messages."""

    hello_timeout_ms: int = 5_000
    """Time from accepting a connection to the end of its greeting, TLS included."""
    connect_timeout_ms: int = 2_000
    backoff_min_ms: int = 20
    backoff_max_ms: int = 1_000
    guest_idle_ms: int = 10_000
    """Time without messages after which a guest, a node that is dialled only because it dialled us, is dropped."""
    connections_max: int = 1_024
    """Accepted connections at one time, clients included. Peers that are wanted get in beyond it."""
    receive_bytes_max: int = 256 << 20
    """Bytes of unfinished messages over all accepted connections; the connection that exceeds it is closed, but clients
    before nodes."""
    queue_bytes_max: int = 32 << 20
    """Bytes that wait for one peer in one lane; beyond it messages are dropped."""
    queue_buffers_max: int = 65_536

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(TransportLimits):
            value = getattr(self, field.name)
            if type(value) is not int or value <= 0:
                raise ConfigError(field.name, value, "must be a whole number above 0")
        if self.backoff_min_ms > self.backoff_max_ms:
            raise ConfigError("backoff_min_ms", self.backoff_min_ms, f"must not exceed {self.backoff_max_ms=}")


@attrs.define(eq=False)
class Counters:
    """Counts of what happened since the start. They only rise."""

    messages_sent: int = 0
    """Messages that were handed to a connection's queue; the connection may still break."""
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    dropped_unconnected: int = 0
    dropped_full: int = 0
    dropped_unknown_peer: int = 0
    dropped_too_large: int = 0
    dialled: int = 0
    dials_failed: int = 0
    accepted: int = 0
    accepts_over_limit: int = 0
    hello_timeouts: int = 0
    refused: int = 0
    """Handshakes that either end refused."""
    malformed: int = 0
    """Connections closed because bad bytes came over them."""

    def as_dict(self) -> dict[str, int]:
        return attrs.asdict(self)


@attrs.define(eq=False)
class Prepared:
    """A message that another thread sends later, on the present connection or the one after it."""

    outbox: Outbox
    data: bytes
    sent: bool = False

    def send(self) -> bool:
        """Send the message, from any thread. Return False if it did not leave."""
        self.sent = self.outbox.send_now(self.data)
        return self.sent


@attrs.define(eq=False)
class _Peer:
    """Another node: wanted by ``set_peers``, or a guest that dials us."""

    node: str
    control: Outbox
    bulk: Outbox
    soon: tuple[Bell, Bell] = attrs.Factory(lambda: (Bell(), Bell()))
    waiting: list[bool] = attrs.Factory(lambda: [False, False])
    """For each lane, True while its dialler sleeps between attempts."""
    learned: str = ""
    """Address in its latest hello."""
    connections: dict[object, Hello] = attrs.Factory(dict)
    """Present connections both ways, by their ``Inbound`` or ``Outbox``."""
    dialling: trio.CancelScope | None = None
    """Scope that ends the lanes to it; None: it is not dialled."""
    traffic: int = 0
    """Number of messages to and from it."""
    problem: str = ""
    """Reason why the latest dial failed; "" while connected."""

    def dial_soon(self) -> None:
        for lane, bell in enumerate(self.soon):
            if self.waiting[lane]:
                bell.ring()


class Transport:
    """All peer connections of one process. ``send`` and ``flush`` never block; callbacks run in the trio thread.

    It calls ``on_message(peer, message)`` for each message, ``on_batch_end()`` once after all messages of one receive
    (and after each of the other callbacks), ``on_greeted(peer, hello)`` and ``on_identify(peer, incarnation)`` for each
    hello that was accepted, in either direction, and ``on_unreachable(peer)`` when messages to a peer may have been
    lost. It calls none of them from inside ``send`` or ``flush``. ``on_client(stream, hello, received, hold)`` serves a
    client's connection after both hellos; ``received`` holds the bytes that followed the client's hello. It calls
    ``hold(size)`` whenever it keeps so many bytes of an unfinished request, which raises ``MalformedMessage`` beyond
    ``receive_bytes_max``. The stream is closed when it returns.
    """

    def __init__(
        self,
        hello: Hello,
        *,
        config: Config,
        rng: Random,
        on_message: OnMessage,
        on_batch_end: Callable[[], object] = _nothing,
        on_greeted: Callable[[str, Hello], None] = _nothing,
        on_identify: Callable[[str, bytes], None] = _nothing,
        on_unreachable: Callable[[str], None] = _nothing,
        on_client: OnClient | None = None,
        refuse_peer: Callable[[str, Caller], str | None] | None = None,
        met: Callable[[str], Met] = lambda _: NONE_MET,
        addresses: Mapping[str, str] | None = None,
        tls: TLSConfig | None = None,
        limits: TransportLimits | None = None,
        connect: Connector = connect_tcp,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Prepare the connections of the node that ``hello`` names; lane, boot number and ``expects`` are filled in for
        each.

        ``refuse_peer(node, caller)`` returns why a node that dials is not let in; None if it is. ``met(node)`` returns
        the lives of that node which this node met.
        ``rng`` draws the boot number and the jitter of reconnecting: seed it from the system in production.
        Raises ``ConfigError`` for an address or certificate that cannot be used.
        """
        self.hello = attrs.evolve(hello, boot=rng.getrandbits(64))
        self.limits = limits or TransportLimits()
        self.counters = Counters()
        self.refusals: dict[str, Refusal] = {}
        """Peer's id, or address if it said no id -> its latest failed handshake; removed once one succeeds."""
        self.contexts = Contexts(tls) if tls else None
        self._config, self._rng, self._connect, self._clock = config, rng, connect, clock
        self._on_message, self._on_batch_end, self._on_client = on_message, on_batch_end, on_client
        self._on_identify, self._on_unreachable, self._refuse_peer = on_identify, on_unreachable, refuse_peer
        self._on_greeted, self._met = on_greeted, met
        self._wanted: frozenset[str] = frozenset()
        self._peers: dict[str, _Peer] = {}
        self._addresses: dict[str, str] = {}
        for node, address in (addresses or {}).items():
            split_address(address)
            self.set_address(node, address)
        self._inbound: set[Inbound] = set()
        self._heard: dict[Inbound, None] = {}
        """Those of them that found no place and have not greeted yet, oldest first."""
        self._unfinished_bytes = 0
        self._dirty: list[Outbox] = []
        self._nursery: trio.Nursery | None = None
        self._scratch = memoryview(bytearray(_RECEIVE_BYTES))
        """Buffer shared by all receive loops: each fills and empties it without a checkpoint in between."""

    # --- sending ---------------------------------------------------------------------------------------------

    def send(self, peer: str, message: PeerMessage) -> None:
        """Queue a message for the next ``flush``. It is dropped, and counted, if there is no connection or no room."""
        known = self._peers.get(peer)
        if known is None:
            self.counters.dropped_unknown_peer += 1
            return
        known.traffic += 1
        if known.dialling is None:
            self._start_dialling(known)
        buffers = wire.encode(message)
        outbox = known.control if len(buffers) == 1 else known.bulk
        if not outbox.accepting:
            self.counters.dropped_unconnected += 1
            return
        size = sum(map(len, buffers))
        if size > self._config.message_bytes_max + wire.HEADER_BYTES:
            self.counters.dropped_too_large += 1
            logger.error(
                "a message of %d bytes for %s exceeds message_bytes_max=%d: was the log written under larger limits?",
                size, peer, self._config.message_bytes_max,
            )
            return
        if not outbox.put(buffers, size):
            self.counters.dropped_full += 1
        else:
            self.counters.messages_sent += 1
            self.counters.bytes_sent += size
        if not outbox.dirty:
            outbox.dirty = True
            self._dirty.append(outbox)

    def prepare(self, peer: str, message: PeerMessage) -> Prepared | None:
        """Prepare a small message for another thread to send later; None if ``send`` would drop it or make it wait."""
        known = self._peers.get(peer)
        if known is None or not known.control.accepting:
            return None
        (data,) = wire.encode(message)
        return Prepared(known.control, data)

    def note_sent(self, peer: str, prepared: Prepared) -> None:
        """Count a message that another thread sent."""
        self.counters.messages_sent += 1
        self.counters.bytes_sent += len(prepared.data)
        if known := self._peers.get(peer):
            known.traffic += 1

    def flush(self, lanes_max: int | None = None) -> bool:
        """Write what ``send`` queued, with one system call for each lane, in the order of ``send``.

        Returns False if some is left, which a task writes.
        """
        dirty, gone = self._dirty, True
        if dirty:
            for outbox in dirty[:lanes_max]:
                gone = outbox.flush() and gone
            del dirty[:lanes_max]
        return gone

    # --- who is a peer, and where ----------------------------------------------------------------------------

    def set_peers(self, peers: Iterable[str]) -> None:
        """Stay connected to these nodes, and to others only while they are connected to us."""
        self._wanted = frozenset(peers) - {self.hello.node}
        for node in sorted(self._wanted):
            self._peer(node)
        for node in list(self._peers):
            self._drop_if_idle(node)

    def set_address(self, peer: str, address: str) -> None:
        """Dial ``peer`` at this address from now on. A bad one, which a membership may hold, shows in ``problem``."""
        if self._addresses.get(peer) != address:
            self._addresses[peer] = address
            self.connect_soon(peer)

    def connect_soon(self, peer: str) -> None:
        """Dial a peer now, if it is not connected."""
        if known := self._peers.get(peer):
            known.dial_soon()

    def connected(self, peer: str) -> bool:
        """Return whether a connection to or from the peer stands."""
        known = self._peers.get(peer)
        return known is not None and bool(known.connections)

    def problem(self, peer: str) -> str:
        """Return why the latest attempt to connect to the peer failed; "" while connected or before the first."""
        known = self._peers.get(peer)
        return known.problem if known else ""

    def _peer(self, node: str) -> _Peer:
        known = self._peers.get(node)
        if known is None:
            limits = self.limits
            known = self._peers[node] = _Peer(
                node,
                Outbox(limits.queue_bytes_max, limits.queue_buffers_max),
                Outbox(limits.queue_bytes_max, limits.queue_buffers_max),
            )
        self._start_dialling(known)
        return known

    def _start_dialling(self, peer: _Peer) -> None:
        if not fits(peer.node):  # a membership that was written before names were checked may hold it
            if not peer.problem:
                peer.problem = f"no hello can name {peer.node!r:.80}: remove it from the membership"
                logger.warning("a member is not dialled: %s", peer.problem)
        elif self._nursery is not None and peer.dialling is None:
            peer.dialling = trio.CancelScope()
            peer.control.accepting = peer.bulk.accepting = True
            self._nursery.start_soon(self._keep_dialling, peer, peer.dialling, name=f"lanes to {peer.node}")

    def _drop_if_idle(self, node: str) -> None:
        peer = self._peers.get(node)
        if peer and node not in self._wanted and not any(isinstance(key, Inbound) for key in peer.connections):
            del self._peers[node]
            if peer.dialling:
                peer.dialling.cancel()

    # --- running ---------------------------------------------------------------------------------------------

    async def run(
        self,
        listen: str | None = None,
        *,
        listeners: list[Listener[Any]] | None = None,
        task_status: trio.TaskStatus[list[Listener[Any]]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Dial the peers, and accept connections if told so, until cancelled. Reports its listeners once they listen.

        ``listen`` is ``host:port`` (port 0: any). Without ``listen`` and ``listeners``, connections come only through
        ``serve_stream``.
        """
        if self._nursery is not None:
            raise UsageError("this transport runs already")
        if listen is not None or listeners:
            self.limits = attrs.evolve(self.limits, connections_max=places(self.limits.connections_max))
        if listen is not None:
            host, port = split_address(listen)
            opened = await trio.open_tcp_listeners(port, host=host)
            listeners = [*(listeners or ()), *opened]
            if not self.hello.address:
                bound = opened[-1].socket.getsockname()[1]
                self.hello = attrs.evolve(self.hello, address=join_address(host, bound))
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for peer in self._peers.values():
                    self._start_dialling(peer)
                if listeners:
                    nursery.start_soon(trio.serve_listeners, self.serve_stream, listeners)
                task_status.started(listeners or [])
                await trio.sleep_forever()
            finally:
                self._nursery = None
                for connection in self._inbound:
                    connection.scope.cancel()

    # --- dialling --------------------------------------------------------------------------------------------

    async def _keep_dialling(self, peer: _Peer, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_lane, peer, Lane.CONTROL, peer.control)
                    nursery.start_soon(self._keep_lane, peer, Lane.BULK, peer.bulk)
                    before = -1
                    while peer.node in self._wanted or peer.traffic != before:
                        before = peer.traffic
                        await trio.sleep(self.limits.guest_idle_ms / 1e3)
                    # Else two nodes that do not want each other would keep each other as guests for ever.
                    scope.cancel()
        finally:
            peer.dialling = None
            peer.control.detach()
            peer.bulk.detach()

    async def _keep_lane(self, peer: _Peer, lane: Lane, outbox: Outbox) -> None:
        limits, failures = self.limits, 0
        while True:
            if address := self._address(peer, failures):
                started = trio.current_time()
                outbox.accepting = True
                await self._run_lane(peer, lane, outbox, address)
                if trio.current_time() - started > limits.backoff_max_ms / 1e3:
                    failures = 0
                self._on_unreachable(peer.node)
                self._on_batch_end()
            else:
                outbox.detach()
            delay = min(limits.backoff_max_ms, limits.backoff_min_ms << min(failures, 20)) / 1e3
            failures += 1
            peer.waiting[lane] = True
            with trio.move_on_after(delay * (0.5 + self._rng.random() / 2)):
                await peer.soon[lane].wait()
            peer.waiting[lane] = False

    def _address(self, peer: _Peer, failures: int) -> str:
        """Return the address to dial now: the address book's, in turns with the peer's own, if both are known."""
        known = [address for address in (self._addresses.get(peer.node), peer.learned) if address]
        return known[failures % len(known)] if known else ""

    async def _run_lane(self, peer: _Peer, lane: Lane, outbox: Outbox, address: str) -> None:
        """Run one connection from dial to end. The reason of the end is kept in ``peer.problem``; nothing is raised."""
        self.counters.dialled += 1
        stream: Stream | None = None
        try:
            with trio.fail_after(self.limits.connect_timeout_ms / 1e3):
                stream = await self._connect(address)
                if self.contexts:
                    stream = await start_tls(stream, self.contexts.client, server=False)
                received = bytearray()
                own = attrs.evolve(self.hello, lane=lane, expects=peer.node, met=self._met(peer.node))
                theirs = await greet(stream, own, received)
                await self._check_dialled(peer, stream, theirs)
            self._identified(peer, outbox, theirs)
            outbox.attach(stream)
            await self._watch_lane(peer, outbox, stream, received)
            self._lane_failed(peer, "the other end closed the connection")
        except trio.TooSlowError:
            self._lane_failed(peer, f"{address} did not answer within {self.limits.connect_timeout_ms} ms")
        except Refused as refused:
            self._note_refusal(peer.node, refused.kind, refused.reason)
            self._lane_failed(peer, refused.reason)
        except (MalformedMessage, *STREAM_ERRORS) as error:
            if isinstance(error.__cause__, ssl.SSLError):
                self._note_refusal(peer.node, RefusalKind.CERTIFICATE, f"TLS failed: {error.__cause__}")
            self._lane_failed(peer, f"{address}: {words(error)}")
        finally:
            peer.connections.pop(outbox, None)
            outbox.detach()
            if stream is not None:
                await trio.aclose_forcefully(stream)

    def _lane_failed(self, peer: _Peer, problem: str) -> None:
        self.counters.dials_failed += 1
        if peer.problem != problem:
            logger.info("connection to %s: %s", peer.node, problem)
        peer.problem = problem

    async def _check_dialled(self, peer: _Peer, stream: Stream, theirs: Hello) -> None:
        try:
            self._check_tls(stream, theirs)
            self._check_same_process(peer, theirs)
        except Refused as refused:
            await refuse(stream, refused)
            raise

    async def _watch_lane(self, peer: _Peer, outbox: Outbox, stream: Stream, received: bytearray) -> None:
        """Write and listen until the connection ends, and raise the error that ended it."""
        ended: list[Exception] = []

        async def watch() -> None:
            try:
                while True:
                    greeting = await read_greeting(stream, received)
                    if isinstance(greeting, HelloRefusal):
                        raise Refused(greeting.kind, greeting.reason)
                    if not isinstance(greeting, Ping):
                        raise MalformedMessage("a second hello on one connection")
            except (Refused, MalformedMessage, *STREAM_ERRORS) as error:
                ended.append(error)
            nursery.cancel_scope.cancel()

        async def write() -> None:
            try:
                while True:
                    await outbox.run()
                    self._on_unreachable(peer.node)
                    self._on_batch_end()
            except STREAM_ERRORS as error:
                ended.append(error)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            nursery.start_soon(write)
        if ended:
            raise ended[0]

    # --- accepting -------------------------------------------------------------------------------------------

    async def serve_stream(self, stream: Stream, prefix: bytes | bytearray = b"") -> None:
        """Serve one accepted connection to its end, and close it. ``prefix`` holds bytes that were read already.

        For servers that share their port: takes any trio stream, plain or ``trio.SSLStream`` after its handshake.
        Raises no error that the other end could cause. ``run`` must be running.
        """
        if self._nursery is None:
            raise UsageError("serve_stream needs a running transport")
        connection = Inbound(stream)
        if len(self._inbound) >= self.limits.connections_max:
            if not self._wanted:
                self.counters.accepts_over_limit += 1
                await trio.aclose_forcefully(stream)
                return
            self._hear(connection)
        self.counters.accepted += 1
        self._inbound.add(connection)
        try:
            with connection.scope:
                await self._serve(connection, bytearray(prefix))
        except MalformedMessage as error:
            self.counters.malformed += 1
            logger.warning("connection from %s closed: %s", whence(connection), error)
        except Refused as refused:
            self._note_refusal(whence(connection), refused.kind, refused.reason)
            await refuse(connection.stream, refused)
        except STREAM_ERRORS as error:
            if isinstance(error.__cause__, ssl.SSLError):
                self._note_refusal(whence(connection), RefusalKind.CERTIFICATE, f"TLS failed: {error.__cause__}")
            else:
                logger.debug("connection from %s broke: %s", whence(connection), words(error))
        finally:
            self._inbound.discard(connection)
            self._forget(connection)
            await trio.aclose_forcefully(connection.stream)

    def _hear(self, connection: Inbound) -> None:
        """Let a connection that found no place say whether it is a wanted peer. Who did not say so for longest goes."""
        if len(self._heard) >= HEARD_MAX:
            oldest = next(iter(self._heard))
            del self._heard[oldest]
            self.counters.accepts_over_limit += 1
            oldest.scope.cancel()
        self._heard[connection] = None

    def _check_place(self, connection: Inbound, hello: Hello) -> None:
        """End a connection that found no place, unless it is a wanted peer's or another one has left meanwhile."""
        if connection not in self._heard:
            return
        del self._heard[connection]
        if len(self._inbound) - len(self._heard) > self.limits.connections_max and (
                hello.lane is Lane.CLIENT or hello.node not in self._wanted):
            self.counters.accepts_over_limit += 1
            raise trio.BrokenResourceError(f"all {self.limits.connections_max} places are taken")

    async def _serve(self, connection: Inbound, received: bytearray) -> None:
        tune_socket(connection.stream)
        with trio.move_on_after(self.limits.hello_timeout_ms / 1e3) as timer:
            hello = await self._accept(connection, received)
        if timer.cancelled_caught:
            self.counters.hello_timeouts += 1
            return
        stream = connection.stream
        if hello.lane is Lane.CLIENT:
            assert self._on_client is not None
            await self._on_client(stream, hello, bytes(received), partial(self._hold, connection))
            return
        peer = self._peers[hello.node]
        if isinstance(stream, trio.SocketStream):
            await self._receive_from_socket(peer, connection, stream.socket, received)
        else:
            await self._receive_from_stream(peer, connection, received)

    async def _accept(self, connection: Inbound, received: bytearray) -> Hello:
        """Greet as the acceptor; before that, start TLS if the first byte says so."""
        stream = connection.stream
        if not received:
            received += await stream.receive_some(4_096)
            if not received:
                raise trio.BrokenResourceError("closed before a greeting")
        if received[0] == TLS_RECORD and self.contexts and not isinstance(stream, trio.SSLStream):
            connection.stream = PrefixedStream(received, stream)
            received.clear()
            stream = connection.stream = await start_tls(connection.stream, self.contexts.server, server=True)
        hello = await read_greeting(stream, received)
        if not isinstance(hello, Hello):
            raise MalformedMessage("a hello was due")
        connection.hello = hello
        own = attrs.evolve(self.hello, lane=hello.lane)
        check_hello(own, hello)
        self._check_tls(stream, hello)
        self._check_place(connection, hello)
        if hello.lane is not Lane.CLIENT:
            self._admit(connection, hello)
        elif self._on_client is None:
            raise Refused(RefusalKind.OTHER, f"node {own.node!r} serves no clients on this port")
        await stream.send_all(encode_greeting(attrs.evolve(own, met=self._met(hello.node))))
        return hello

    def _check_tls(self, stream: Stream, theirs: Hello) -> None:
        node = "" if theirs.lane is Lane.CLIENT else theirs.node
        if isinstance(stream, trio.SSLStream):
            config = self.contexts.config if self.contexts else None
            try:
                certificate: dict[str, Any] | None = stream.getpeercert()
            except ValueError as error:  # renegotiating, or closed already: ssl does not give the certificate
                raise Refused(RefusalKind.CERTIFICATE, f"TLS with {theirs.node!r} is not settled: {error}") from error
            check_certificate(config, certificate, stream.selected_alpn_protocol(), node)
        elif self.contexts:
            raise Refused(RefusalKind.CERTIFICATE, f"node {self.hello.node!r} takes connections over TLS only")

    def _admit(self, connection: Inbound, hello: Hello) -> None:
        """Count a peer's connection from here on. Raises ``Refused`` if the peer is not let in, or is connected from
        another process or directory.
        """
        if self._refuse_peer is not None and (why := self._refuse_peer(hello.node, caller_of(connection.stream))):
            raise Refused(RefusalKind.STRANGER, why)
        peer = self._peer(hello.node)
        self._check_same_process(peer, hello)
        for key, known in peer.connections.items():
            if isinstance(key, Inbound) and known.lane is hello.lane:
                key.scope.cancel()  # the peer dialled again, so it has given this one up
        if hello.address:
            peer.learned = hello.address
        self._identified(peer, connection, hello)
        peer.dial_soon()

    def _check_same_process(self, peer: _Peer, hello: Hello) -> None:
        """Raise ``Refused`` if ``peer`` is connected from another process or directory, and ping that connection."""
        for key, known in peer.connections.items():
            try:
                check_same_process(known, hello)
            except Refused:
                if isinstance(key, Inbound) and self._nursery and not key.pinging:
                    key.pinging = True
                    self._nursery.start_soon(ping, key)
                raise

    def _identified(self, peer: _Peer, key: object, hello: Hello) -> None:
        peer.connections[key] = hello
        peer.problem = ""
        self.refusals.pop(peer.node, None)
        self._on_greeted(peer.node, hello)
        self._on_identify(peer.node, hello.incarnation)
        self._on_batch_end()

    def _forget(self, connection: Inbound) -> None:
        self._heard.pop(connection, None)
        self._unfinished_bytes -= connection.unfinished_bytes
        if connection.hello is not None and (peer := self._peers.get(connection.hello.node)):
            peer.connections.pop(connection, None)
            self._drop_if_idle(peer.node)

    def _note_refusal(self, who: str, kind: RefusalKind, reason: str) -> None:
        self.counters.refused += 1
        before = self.refusals.pop(who, None)
        if before is None or before.reason != reason:
            logger.warning("handshake with %s refused: %s", who, reason)
        self.refusals[who] = Refusal(peer=who, kind=kind, reason=reason, at_ns=self._clock())
        while len(self.refusals) > _REFUSALS_MAX:
            del self.refusals[next(iter(self.refusals))]

    # --- receiving -------------------------------------------------------------------------------------------

    async def _receive_from_socket(
        self, peer: _Peer, connection: Inbound, sock: trio.socket.SocketType, received: bytearray
    ) -> None:
        decoder = wire.Decoder(self._config.message_bytes_max)
        if received:
            self._deliver(peer, connection, decoder, bytes(received))
        scratch, buffers, fd = self._scratch, [self._scratch], sock.fileno()
        while True:
            await trio.lowlevel.wait_readable(sock)
            try:
                size = os.readv(fd, buffers)
            except BlockingIOError:
                continue
            if not size:
                return
            self._deliver(peer, connection, decoder, scratch[:size])

    async def _receive_from_stream(self, peer: _Peer, connection: Inbound, received: bytearray) -> None:
        decoder = wire.Decoder(self._config.message_bytes_max)
        data: bytes | bytearray = bytes(received)
        while True:
            if data:
                self._deliver(peer, connection, decoder, data)
            data = await connection.stream.receive_some(_RECEIVE_BYTES)
            if not data:
                return

    def _hold(self, connection: Inbound, size: int) -> None:
        """Count the unfinished bytes of a connection. Raises ``MalformedMessage`` if there are too many over all; but
        clients do not take them from nodes, so if that makes room the clients that hold the most are cut off first."""
        self._unfinished_bytes += size - connection.unfinished_bytes
        connection.unfinished_bytes = size
        limit = self.limits.receive_bytes_max
        if self._unfinished_bytes <= limit:
            return
        clients = sorted(filter(is_client, self._inbound), key=lambda each: -each.unfinished_bytes)
        of_nodes = self._unfinished_bytes - sum(each.unfinished_bytes for each in clients)
        if not is_client(connection) and of_nodes <= limit:
            while self._unfinished_bytes > limit:
                client = clients.pop(0)
                logger.warning("client %s is cut off: it holds %d of %d bytes of unfinished messages",
                               whence(client), client.unfinished_bytes, self._unfinished_bytes)
                self._unfinished_bytes -= client.unfinished_bytes
                client.unfinished_bytes = 0
                client.scope.cancel()
            return
        raise MalformedMessage(f"{self._unfinished_bytes} bytes of unfinished messages over all connections")

    def _deliver(
        self, peer: _Peer, connection: Inbound, decoder: wire.Decoder, data: bytes | bytearray | memoryview,
    ) -> None:
        counters = self.counters
        try:
            messages = decoder.feed(data)
        except MalformedMessage:
            _raise_refusal(data)
            raise
        if decoder.unfinished_bytes != connection.unfinished_bytes:
            self._hold(connection, decoder.unfinished_bytes)
        counters.bytes_received += len(data)
        if messages:
            counters.messages_received += len(messages)
            peer.traffic += len(messages)
            on_message, node = self._on_message, peer.node
            for message in messages:
                on_message(node, message)
            self._on_batch_end()


def _raise_refusal(data: bytes | bytearray | memoryview) -> None:
    """Raise the refusal of a dialler, which it sends in place of its first message if our hello does not fit."""
    if data[: len(GREETING_MAGIC)] == GREETING_MAGIC:
        found = decode_greeting(bytes(data[:GREETING_BYTES_MAX]))
        if found and isinstance(found[0], HelloRefusal):
            raise Refused(found[0].kind, found[0].reason)
