"""A process's share of a cluster: one directory, one port, one log writer, and any number of groups on them.

Opens and closes things in the right order, wires nodes to transport and disk, and refuses directories that are not what
the caller says. Knows no terms and no indices. ``open_node`` is a host with one group.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, TypedDict, TypeVar, Unpack, overload

import attrs
import trio
from trio.abc import Listener

from raft import arguments
from raft.access import Access, Caller
from raft.clientserver import ServedNode, serve_client
from raft.clientwire import request_bytes_max
from raft.config import MS, NEVER, Config
from raft.driver import Driver
from raft.errors import ConfigError, DamagedLog, DiskFull, StorageError, UsageError, WrongDirectory
from raft.groups import DEFAULT_GROUP, Origin, group_number, read_origin, removed_groups, write_origin
from raft.handshake import Connector, connect_tcp, split_address
from raft.hello import Hello, Lane
from raft.identities import GUESTS_MAX
from raft.lives import RANDOM_BITS, Lives
from raft.membership import Desired, Member, Membership, illegal
from raft.messages import PeerMessage, Recovered, Write
from raft.node import Node, Served
from raft.replica import LIFE_BITS, Replica
from raft.rules import make_rules
from raft.shared import SharedDisk, SharedPeers
from raft.statemachine import (
    AnswerT_co,
    AnyMachine,
    Applies,
    AppliesEntries,
    CodedMachine,
    CommandT,
    EntryMachine,
    Machine,
    ResultT_co,
    StateMachine,
)
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import Identity, check_identity, format_directory, read_identity
from raft.storage.interface import Files, Storage
from raft.storage.lives import begin_life, write_lives
from raft.storage.place import SEGMENTS, MakeStorage, Place, check_kind, note_kind, was_opened
from raft.storage.segment import SegmentStorage
from raft.storage.trouble import in_words
from raft.storage.writer import InlineWriter, LogWriter, WriterEvents
from raft.surroundings import Clock, System
from raft.tls import TLSConfig
from raft.trace import Trace
from raft.transport import Transport, TransportLimits

logger = logging.getLogger("raft.host")
T = TypeVar("T")
THREADS_MAX = 40
"""Worker threads of a host, and of its clients' queries. They are its own, as the program's may wait for the host."""
NOBODY: Mapping[str, str] = {}


def monotonic_ns() -> int:
    """Return trio's time in ns, so that a test's virtual clock is the node's too."""
    return int(trio.current_time() * 1e9)


def suspended_ns() -> int:
    """Return how long this machine was suspended since it booted. The boot clock counts that time, trio's does not."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0 if boot_clock is None else time.clock_gettime_ns(boot_clock) - time.monotonic_ns()


def wall_clock_ms() -> int:
    """Return the wall clock's time, for people and analysis only."""
    return time.time_ns() // 1_000_000


async def run_inline(function: Callable[..., T], *args: Any) -> T:
    """Run the function here, not in a worker thread, so that steps have the same order in every run."""
    await trio.lowlevel.checkpoint()
    return function(*args)


def _threads(inline: bool, limiter: trio.CapacityLimiter) -> Callable[..., Awaitable[Any]]:
    """Return the function that runs blocking calls: in threads, or inline."""
    return run_inline if inline else partial(trio.to_thread.run_sync, limiter=limiter)


@attrs.define(eq=False)
class _Links:
    """The host's knowledge of other nodes, for all groups together."""

    met: dict[str, bytes] = attrs.Factory(dict)
    """Node id -> incarnation, as hellos said."""
    listed: dict[str, str] = attrs.Factory(dict)
    """Addresses as memberships list them. Only a change of these overrides the caller's addresses."""
    lives: Lives = attrs.Factory(Lives)
    """Lives of this directory, and the lives of others that it met."""
    missing: dict[str, tuple[int, ...]] = attrs.Factory(dict)
    """Peer -> lives that it met of this directory, which never had them, for groups that are opened later."""
    kept: bytes = b""
    """The lives as they were last written to disk."""
    to_keep: trio.Event = attrs.Factory(trio.Event)

    def forget_guest(self, known: dict[str, Any]) -> None:
        """Drop a peer if there are too many: a peer that greets under ever new names must not fill the memory."""
        if len(known) > GUESTS_MAX:
            del known[next((peer for peer in known if peer not in self.listed), next(iter(known)))]


class GroupOptions(TypedDict, total=False):
    """Options of ``Host.open_group``, besides the name and the machine."""

    peers: Mapping[str, str]
    bootstrap: bool
    join: bool
    config: Config | None
    trace: Trace | None


class NodeOptions(TypedDict, total=False):
    """Options of ``open_node``, besides node, addresses, directory and machine."""

    bootstrap: bool
    join: bool
    config: Config | None
    cluster: str
    group: str
    listen: str | None
    tls: TLSConfig | None
    limits: TransportLimits | None
    rng: Random | None
    clock: Clock | None
    wall_ms: Callable[[], int]
    files: Files | None
    connect: Connector
    listeners: Sequence[Listener[Any]]
    trace: Trace | None
    access: Access | None
    storage: MakeStorage


class Host:
    """The host that ``open_host`` makes. Groups are opened one by one, and live as long as the host."""

    def __init__(
        self, *, identity: Identity, files: Files, storage: Storage, recovered: dict[int, Recovered],
        config: Config, rng: Random, clock: Clock, wall_ms: Callable[[], int], inline: bool,
        run_blocking: Callable[..., Awaitable[Any]], lives: Lives, access: Access | None = None,
    ) -> None:
        self.node_id, self.cluster, self.incarnation = identity.node_id, identity.cluster, identity.incarnation
        self.config, self.storage = config, storage
        self.drivers: dict[int, Driver] = {}
        """Drivers by number of the group. Users have a ``Node`` of each."""
        self._served: dict[int, ServedNode] = {}
        """Nodes as clients reach them, by number of the group."""
        self._files, self._recovered = files, recovered
        self._rng, self._clock = rng, clock
        self._system = System(clock, wall_ms, run_blocking, suspended_ns)
        self._inline = inline
        self._run_blocking, self._access = run_blocking, access
        self._taken: set[int] = set()
        """Groups that are open or being opened."""
        self._unread: set[int] = set()
        """Groups that were closed: the storage is asked for their data when they are opened again."""
        self._links = _Links(lives=lives, kept=lives.encode())
        self._fulls = 0
        """Number of times that the disk was full."""
        self._keepers_told: set[int] = set()
        """Groups that were logged as keeping the log."""
        self._stopped: set[int] = set()
        """Groups that were logged as damaged."""
        self._touched: list[Driver] = []
        self._transport: Transport | None = None
        self._writer: InlineWriter | LogWriter | None = None
        self._disk: SharedDisk
        self._peers: SharedPeers
        """All groups' way to the peers; ``start`` makes it."""
        self._leaving: dict[int, Driver] = {}
        """Groups that are closed, but whose last writes are not durable yet."""
        self._forgetting: set[int] = set()
        """Groups whose removal is on its way to the disk."""
        self._left = trio.Event()
        """Set, and made anew, when a write of a leaving or removed group may have become durable."""
        self._disk_failure: StorageError | None = None
        """The disk's failure, for groups that are opened later."""
        self._unheard: deque[Mapping[int, int]] = deque()
        """Reports of the writer (``LogWriter.reports``) that the loop was not told of yet."""
        self._nursery: trio.Nursery | None = None
        self._closed = False

    # --- for the user ----------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Address at which this host listens, ``host:port``; "" if it does not listen."""
        return self.transport.hello.address

    @property
    def transport(self) -> Transport:
        assert self._transport is not None
        return self._transport

    @overload
    async def open_group(
        self, name: str = ..., *, state_machine: CodedMachine[CommandT, ResultT_co, AnswerT_co],
        **options: Unpack[GroupOptions],
    ) -> Node[CommandT, ResultT_co, AnswerT_co]: ...

    @overload
    async def open_group(
        self, name: str = ..., *,
        state_machine: StateMachine[bytes, ResultT_co, AnswerT_co] | EntryMachine[ResultT_co, AnswerT_co],
        **options: Unpack[GroupOptions],
    ) -> Node[bytes, ResultT_co, AnswerT_co]: ...

    @overload
    async def open_group(
        self, name: str = ..., *, state_machine: Applies | AppliesEntries, **options: Unpack[GroupOptions],
    ) -> Node[bytes, Any, Any]: ...

    async def open_group(
        self, name: str = DEFAULT_GROUP, *, state_machine: AnyMachine, peers: Mapping[str, str] = NOBODY,
        bootstrap: bool = False, join: bool = False, config: Config | None = None, trace: Trace | None = None,
    ) -> Node[Any, Any, Any]:
        """Start this host's node of a group, and return it.

        The first time, ``bootstrap`` says that ``peers`` (id to address, this node among them) are the first voters of
        a new group; all of them must be given the same. ``join`` says that the group exists and will take this node in
        by ``reconfigure``. Later both are ignored, and ``peers`` only tells where others listen.

        ``config`` may differ from the host's, but not in rules and election timeout: hellos name the host's. Its
        messages, and so its entries, are no larger.

        Raises ``UsageError``, ``ConfigError``, ``WrongDirectory``, ``DamagedLog``.
        """
        self._check_open()
        peers = arguments.addresses("peers", peers)
        arguments.kinds(config=(config, Config), bootstrap=(bootstrap, bool), join=(join, bool))
        if bootstrap and join:
            raise UsageError("bootstrap makes a new group, join enters an existing one: not both")
        Machine(state_machine)  # raises for a wrong machine before the group begins
        if trace is not None:
            arguments.functions(trace=trace)
        for field in ("rules", "election_timeout_ms"):
            if config is not None and getattr(config, field) != getattr(self.config, field):
                raise ConfigError(field, getattr(config, field), f"must be the host's, {getattr(self.config, field)}")
        if config is not None and config.message_bytes_max > self.config.message_bytes_max:
            raise ConfigError("message_bytes_max", config.message_bytes_max,
                              f"must not exceed the host's, {self.config.message_bytes_max}: all groups share its "
                              "connections and segments")
        number = group_number(name)
        if number in self._taken:
            raise UsageError(f"group {name!r} is open already; or closing it was interrupted: then open the host again")
        self._taken.add(number)
        try:
            return await self._open(number, name, state_machine, peers, bootstrap, join, config or self.config, trace)
        except BaseException:
            self._taken.discard(number)
            raise

    async def _open(
        self, number: int, name: str, state_machine: AnyMachine, peers: Mapping[str, str], bootstrap: bool,
        join: bool, config: Config, trace: Trace | None,
    ) -> Node[Any, Any, Any]:
        if number in self._unread:
            self._recovered[number] = await self._run_blocking(in_words(self.storage.recovered), number)
            self._unread.discard(number)
        origin = await self._origin(number, name, peers, bootstrap, join)
        replica = Replica(
            group=number, node_id=self.node_id, config=config, rules=make_rules(config), now=self._clock(),
            rng=Random(self._rng.getrandbits(64)), recovered=self._recovered.get(number, Recovered()),
            membership=origin.membership, life=self._rng.getrandbits(LIFE_BITS), incarnation=self.incarnation,
            trace=trace)
        replica.following.members_only = self._access is not None
        driver = Driver(name=name, cluster=self.cluster, replica=replica, state_machine=state_machine, config=config,
                        disk=self._disk, peers=self._peers, system=self._system, introduced=peers)
        self._peers.learn({**_addresses(replica.membership), **peers})
        self._links.listed.update(_addresses(replica.membership))
        self._links.to_keep.set()
        await driver.restore()
        self._check_open()
        # Peers greet meanwhile: what they said is taken when the node is where later hellos reach it.
        self.drivers[number] = driver
        for peer, incarnation in self._links.met.items():
            replica.identities.meet(self._clock(), peer, incarnation)
        for peer, lives in self._links.missing.items():
            replica.regaining.outlived(self._clock(), peer, lives)
        self._served[number] = Served(driver)
        self._recovered.pop(number, None)
        assert self._nursery is not None
        driver.start(self._nursery)
        if (failure := self._disk_failure or self.storage.damaged.get(number)) is not None:
            driver.write_failed(failure)
        self._meet()
        return Node(driver, driver.applier.machine.encode)

    async def close_group(self, name: str = DEFAULT_GROUP) -> None:
        """Stop this host's node of a group. Other groups go on. Its data stays, and ``open_group`` continues from it.

        If this is cancelled while it waits for the disk, the group stays closed until the host is opened again. Raises
        ``UsageError`` if the group is not open, or the host ends meanwhile.
        """
        self._check_open()
        number = group_number(name)
        driver = self.drivers.get(number)
        if driver is None:
            raise UsageError(f"group {name!r} is not open")
        await driver.stop(transfer=True)
        if self.drivers.pop(number, None) is None:
            raise UsageError(f"group {name!r} is being closed already")
        del self._served[number]
        self._leaving[number] = driver
        if driver in self._touched:
            self._touched.remove(driver)
        self._meet()
        await driver.leave()
        while driver.durable_token < driver.submitted and driver.storage_state == "ok" and not self._closed:
            await self._left.wait()
        del self._leaving[number]
        self._check_open()
        self._unread.add(number)
        self._taken.discard(number)

    async def remove_group(self, name: str = DEFAULT_GROUP) -> None:
        """Remove a group from this host for good, open or not: its log, its snapshots and all files.

        Take this node out of the membership first, unless the whole group shall go: it will never vote again, since its
        name cannot be used again here. An interrupted removal is finished when the host is opened again.

        Raises ``UsageError`` (it never began here; the host ended meanwhile), ``StorageError`` (it is closed then).
        """
        self._check_open()
        number = group_number(name)
        origin: Origin | None = await self._run_blocking(in_words(read_origin), self._files, number)
        if origin is None or origin.name != name:
            raise UsageError(f"group {name!r} has not begun in this directory")
        if number in self.drivers:
            await self.close_group(name)
        elif number in self._taken:
            raise UsageError(f"group {name!r} is being opened or removed")
        self._taken.add(number)
        try:
            await self._run_blocking(in_words(write_origin), self._files, number, attrs.evolve(origin, removed=True))
            self._check_open()
            await self._forget(number)
        finally:
            self._taken.discard(number)

    async def _forget(self, number: int) -> None:
        """Empty the group's log. When that is durable, destroy its snapshots, which it needs to open until then."""
        writer = self._writer
        assert writer is not None
        self._recovered.pop(number, None)
        self._unread.discard(number)
        self._forgetting.add(number)
        full = self._fulls
        writer.submit(Write(NEVER, number, forget=True))
        while number in self._forgetting and not self._closed:
            if self._disk_failure is None and self._fulls == full:
                await self._left.wait()
                continue
            self._forgetting.discard(number)
            if self._disk_failure is not None:
                raise self._disk_failure
            raise DiskFull("no room to say that the group is removed; opening the host again finishes it")
        self._check_open()
        await self._run_blocking(in_words(self.storage.drop_snapshots), number)

    # --- life ------------------------------------------------------------------------------------------------

    async def start(
        self, nursery: trio.Nursery, listen: str | None, address: str, listeners: list[Listener[Any]],
        tls: TLSConfig | None, limits: TransportLimits | None, connect: Connector,
    ) -> None:
        """Start the transport and the log writer. Groups are opened later."""
        self._nursery = nursery
        hello = Hello(
            cluster=self.cluster, node=self.node_id, incarnation=self.incarnation, lane=Lane.CONTROL,
            rules=self.config.rules.value, address=address, lease_ms=make_rules(self.config).lease_ns // MS,
            request_bytes_max=request_bytes_max(self.config), life=self._links.lives.now)
        self._transport = Transport(
            hello, config=self.config, rng=Random(self._rng.getrandbits(64)), on_message=self._on_message,
            on_batch_end=self._on_batch_end, on_greeted=self._on_greeted, on_identify=self._on_identify,
            on_unreachable=self._on_unreachable, met=self._links.lives.met,
            on_client=partial(serve_client, self._served, self.config, access=self._access,
                              run_blocking=_threads(self._inline, trio.CapacityLimiter(THREADS_MAX))),
            refuse_peer=self._refuse_peer if self._access is not None else None, tls=tls,
            limits=limits, connect=connect, clock=self._clock)
        make = InlineWriter if self._inline else partial(LogWriter, loop_max_ms=self.config.loop_sync_max_ms)
        self._writer = make(
            self.storage, trio.lowlevel.current_trio_token().run_sync_soon,
            WriterEvents(self._on_durable, self._on_disk_full, self._on_write_failed, self._on_kept, self._on_damaged),
            sync=self.config.sync, interval_ms=self.config.sync_interval_ms)
        if isinstance(self._writer, LogWriter):
            self._unheard = self._writer.reports
        self._disk = SharedDisk(self.storage, self._writer, self._transport, self.drivers)
        self._peers = SharedPeers(self._transport, self.node_id, self._members_changed)
        nursery.start_soon(self._keep_lives)
        await nursery.start(partial(self._transport.run, listen, listeners=listeners or None))

    async def stop(self) -> None:
        """Hand leaderships over if that is quick, then answer everybody who waits."""
        async with trio.open_nursery() as nursery:
            for driver in self.drivers.values():
                nursery.start_soon(partial(driver.stop, transfer=True))

    def close(self) -> None:
        """Answer everybody who still waits for one of the groups, and open none any more."""
        self._closed = True
        for driver in self.drivers.values():
            driver.close()
        self._tell_left()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this host has ended, and another may have its directory: open it again")

    def close_disk(self) -> None:
        """Write and sync what is under way, then unlock the directory. Blocks."""
        if self._writer is not None:
            self._writer.close()
        self.storage.close()
        self._files.unlock()

    # --- opening a group -------------------------------------------------------------------------------------

    async def _origin(self, number: int, name: str, peers: Mapping[str, str], bootstrap: bool, join: bool) -> Origin:
        """Return how the group began here. Begins it if the caller says so."""
        origin: Origin | None = await self._run_blocking(in_words(read_origin), self._files, number)
        if origin is not None:
            if origin.name != name:
                raise UsageError(f"groups {name!r} and {origin.name!r} have the same number; choose another name")
            if origin.removed:
                raise UsageError(f"group {name!r} was removed from this directory, where it may have voted: it does "
                                 "not begin here again; choose another name")
            return origin
        recovered = self._recovered.get(number, Recovered())
        if recovered.last_index or recovered.hard_state.term or recovered.snapshot:
            raise DamagedLog(f"group-{number:016x}", 0, "this group has a log here, but how it began is missing")
        if bootstrap:
            if self.node_id not in peers:
                raise UsageError(f"peers must name all first voters: {self.node_id!r} is not in {sorted(peers)}")
            if why := illegal(Desired(peers, NOBODY)):
                raise UsageError(f"peers are the first voters: {why}")
            members = {peer: Member(address) for peer, address in peers.items()}
            origin = Origin(name, Membership(voters=tuple(peers), members=members))
        elif join:
            origin = Origin(name, Membership())
        else:
            raise WrongDirectory(f"group {name!r} has not begun in this directory. {START_WORDS}")
        self._check_open()
        await self._run_blocking(in_words(write_origin), self._files, number, origin)
        return origin

    # --- who is where ----------------------------------------------------------------------------------------

    def _members_changed(self, membership: Membership) -> None:
        """Note that a group's membership changed: learn addresses, and connect to its members."""
        listed = self._links.listed
        moved = {peer: address for peer, address in _addresses(membership).items() if listed.get(peer) != address}
        self._peers.learn(moved)
        listed.update(moved)
        self._links.to_keep.set()
        self._meet()

    def _meet(self) -> None:
        """Stay connected to all members of all groups, and to those that are to take this node in."""
        wanted = set[str]()
        for driver in self.drivers.values():
            wanted.update(driver.replica.membership.everyone, driver.replica.peers, driver.introduced)
        self.transport.set_peers(wanted)

    def _refuse_peer(self, peer: str, caller: Caller) -> str | None:
        """Return why a node that dials is not let in; None if it is. Before a group is open here, any node is."""
        assert self._access is not None
        if why := self._access.peer_refused(caller):
            return why
        if not self.drivers or any(driver.replica.following.hears(peer) for driver in self.drivers.values()):
            return None
        return f"node {peer!r} from {caller} is no member here, and node {self.node_id!r} needs no other leader"

    # --- callbacks -------------------------------------------------------------------------------------------

    def _on_message(self, peer: str, message: PeerMessage) -> None:
        if self._unheard:
            self._hear_disk()
        driver = self.drivers.get(message.group)
        if driver is not None:
            driver.receive(peer, message)
            if driver not in self._touched:
                self._touched.append(driver)

    def _hear_disk(self) -> None:
        """Take reports of the writer that the loop was not told of yet. Their nodes are pumped with the batch."""
        while self._unheard:
            for group, token in self._unheard.popleft().items():
                driver = self.drivers.get(group)
                if driver is None:
                    self._hear_of_left(group, token)
                    continue
                driver.note_durable(token)
                if driver not in self._touched:
                    self._touched.append(driver)

    def _on_batch_end(self) -> None:
        touched, self._touched = self._touched, []
        for driver in touched:
            driver.pump()

    def _on_greeted(self, peer: str, hello: Hello) -> None:
        """Take the lives that a peer's hello names: its own, and those of this directory that it met."""
        links = self._links
        if links.lives.meet(peer, hello.incarnation, hello.life):
            links.lives.forget_guests(links.listed.__contains__)
            links.to_keep.set()
        if missing := links.lives.missing(self.incarnation, hello.met):
            links.missing[peer] = missing
            links.forget_guest(links.missing)
            for driver in self.drivers.values():
                driver.outlived(peer, missing)

    async def _keep_lives(self) -> None:
        """Write down, as a task, the lives of members that were met. A crash loses only those met just before."""
        links = self._links
        while True:
            await links.to_keep.wait()
            links.to_keep = trio.Event()
            body = links.lives.encode(links.listed.__contains__)
            if body != links.kept:
                try:
                    if await self._run_blocking(write_lives, self._files, body):
                        links.kept = body
                except OSError as error:
                    logger.warning("the lives of peers that this node met could not be written down: %s", error)

    def _on_identify(self, peer: str, incarnation: bytes) -> None:
        self._links.met[peer] = incarnation
        self._links.forget_guest(self._links.met)
        for driver in self.drivers.values():
            driver.identify(peer, incarnation)

    def _on_unreachable(self, peer: str) -> None:
        for driver in self.drivers.values():
            driver.unreachable(peer)

    def _on_durable(self, tokens: Mapping[int, int]) -> None:
        """Take, for each group, the last token that is on the disk."""
        for group, token in tokens.items():
            driver = self.drivers.get(group)
            if driver is not None:
                driver.durable(token)
            else:
                self._hear_of_left(group, token)

    def _hear_of_left(self, group: int, token: int) -> None:
        """Take the disk's report for a group that was closed or removed."""
        if group in self._leaving:
            self._leaving[group].durable_token = token
        self._forgetting.discard(group)
        self._tell_left()

    def _tell_left(self) -> None:
        self._left.set()
        self._left = trio.Event()

    def _on_disk_full(self) -> None:
        self._fulls += 1
        for driver in (*self.drivers.values(), *self._leaving.values()):
            driver.disk_full()
        self._tell_left()

    def _on_kept(self, groups: Mapping[int, int]) -> None:
        """Take the groups that keep the oldest segment: they must free it if the log is much longer than needed."""
        needed = sum(max(driver.replica.log.kept_bytes, driver.snapshots.log_bytes) for driver in self.drivers.values())
        length = self.storage.log_bytes
        long = length > 2 * self.config.segment_bytes + needed
        for number, driver in self.drivers.items():
            driver.keeps_log = 0
            if long and number in groups and not driver.snapshots.shorten():
                driver.keeps_log = length
                self._tell_once(number, f"group {driver.name!r} keeps {length} bytes of the shared log: its state "
                                        "machine has no snapshot()")
        for number in groups if long else ():
            if number not in self.drivers:
                self._tell_once(number, f"group {number} keeps {length} bytes of the shared log, and is not open here: "
                                        "open it, or remove it")

    def _on_damaged(self, groups: Mapping[int, DamagedLog]) -> None:
        """Stop the nodes of groups whose entries are damaged. The others go on."""
        for number, error in groups.items():
            driver = self.drivers.get(number) or self._leaving.get(number)
            if driver is not None:
                driver.write_failed(error)
            if number not in self._stopped:
                self._stopped.add(number)
                logger.error("what the disk had stored of group %s is damaged: %s. Its node stops here, others go on; "
                             "the log is not shortened before that group is removed here",
                             repr(driver.name) if driver is not None else number, error)
        self._tell_left()

    def _tell_once(self, number: int, words: str) -> None:
        if number not in self._keepers_told:
            self._keepers_told.add(number)
            logger.warning("%s", words)

    def _on_write_failed(self, error: StorageError) -> None:
        self._disk_failure = error
        for driver in (*self.drivers.values(), *self._leaving.values()):
            driver.write_failed(error)
        self._tell_left()


def _addresses(membership: Membership) -> dict[str, str]:
    return {peer: member.address for peer, member in membership.members.items() if member.address}


def _known(address: str) -> str:
    """Return the address, or "" if its port is not chosen yet."""
    return "" if address.endswith(":0") else address


START_WORDS = (
    "Pass bootstrap=True if this node is one of the first voters of a new group, or join=True if it is to enter an "
    "existing one. If it has run before, its data is gone: let it join, do not bootstrap it again."
)


def segments(place: Place) -> Storage:
    """Make the storage that is used unless another is given."""
    return SegmentStorage(
        place.files, place.identity.cluster, place.identity.node_id, segment_bytes=place.config.segment_bytes,
        rng=place.rng, background=not place.inline, opened_before=place.opened_before)


async def _open_storage(
    directory: str, files: Files, cluster: str, node_id: str, create: bool, config: Config, rng: Random, inline: bool,
    make: MakeStorage, run_blocking: Callable[..., Awaitable[Any]],
) -> tuple[Identity, Storage, dict[int, Recovered], Lives]:
    """Open the directory's storage, and begin a life. Formats an empty directory first, if ``create``."""

    def work() -> tuple[Identity, Storage, dict[int, Recovered], Lives]:
        files.lock()
        with ExitStack() as undo:
            undo.callback(files.unlock)
            if read_identity(files) is None:
                if not create:
                    raise WrongDirectory(f"the directory is empty or not formatted. {START_WORDS}")
                format_directory(files, cluster, node_id, rng.randbytes(16))
            identity, before = check_identity(files, cluster, node_id), was_opened(files)
            storage = make(Place(directory, files, identity, before, config, Random(rng.getrandbits(64)), inline))
            check_kind(files, storage.kind)
            if noted := storage.kind != SEGMENTS and not before:
                note_kind(files, storage.kind, opened=False)
            recovered = storage.open()
            undo.callback(storage.close)
            if noted:
                note_kind(files, storage.kind, opened=True)
            for number in removed_groups(files):  # an interrupted removal may have left some of their data
                found = recovered.pop(number, None)
                if found is not None and (found.last_index or found.snapshot):
                    storage.write([Write(0, number, forget=True)])
                    storage.sync()
                storage.drop_snapshots(number)
            lives = begin_life(files, rng.getrandbits(RANDOM_BITS))
            undo.pop_all()
        return identity, storage, recovered, lives

    opened: tuple[Identity, Storage, dict[int, Recovered], Lives] = await run_blocking(in_words(work, directory))
    return opened


@asynccontextmanager
async def open_host(
    data_dir: str | os.PathLike[str], *, node_id: str, listen: str | None, address: str = "",
    cluster: str = "default", create: bool = False, config: Config | None = None, tls: TLSConfig | None = None,
    limits: TransportLimits | None = None, rng: Random | None = None, clock: Clock | None = None,
    wall_ms: Callable[[], int] = wall_clock_ms, files: Files | None = None, connect: Connector = connect_tcp,
    listeners: Sequence[Listener[Any]] = (), access: Access | None = None, storage: MakeStorage = segments,
) -> AsyncIterator[Host]:
    """Open a directory and a port for groups. The end of the block stops them in order and answers all who wait.

    ``create`` formats an empty directory. ``listen`` is ``host:port`` (port 0: any; None: connections come from
    ``listeners`` or ``Host.transport.serve_stream``); ``address`` is where others reach it, if that differs.
    ``files``, ``clock`` (monotonic, ns), ``wall_ms``, ``rng`` and ``connect`` replace disk, time, chance and network;
    with ``files`` no threads are used. ``access`` says who may change the groups, and who may connect as a node; None:
    everybody who can connect. ``storage`` makes the storage of the log, of the same kind at every opening.

    Raises ``WrongDirectory``, ``DamagedLog``, any other ``StorageError`` (the directory), ``LocalError`` (an argument),
    ``OSError`` (the port).
    """
    arguments.kinds(
        address=(address, str), listeners=(listeners, Sequence), config=(config, Config), tls=(tls, TLSConfig),
        limits=(limits, TransportLimits), rng=(rng, Random), access=(access, Access), create=(create, bool))
    arguments.functions(wall_ms=wall_ms, connect=connect, storage=storage, clock=clock or monotonic_ns)
    if listen is not None:
        split_address(listen)
    node_id, cluster = arguments.a_name("node_id", node_id), arguments.a_name("cluster", cluster)
    directory, listeners = arguments.directory(data_dir), list(listeners)
    config, rng, clock = config or Config(), rng or Random(SystemRandom().getrandbits(128)), clock or monotonic_ns
    inline = files is not None
    run_blocking = _threads(inline, threads := trio.CapacityLimiter(THREADS_MAX))
    address = arguments.own_address(_known(address) or _known(listen or ""))
    files = files if files is not None else DirectoryFiles(Path(directory))
    identity, kept, recovered, lives = await _open_storage(
        directory, files, cluster, node_id, create, config, rng, inline, storage, run_blocking)
    host = Host(identity=identity, files=files, storage=kept, recovered=recovered, config=config, rng=rng,
                clock=clock, wall_ms=wall_ms, inline=inline, run_blocking=run_blocking, lives=lives, access=access)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                await host.start(nursery, listen, address, listeners, tls, limits, connect)
                yield host
                await host.stop()
            except BaseException as error:
                failure = error
                raise
            finally:
                host.close()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # An error of the caller's block is raised as it is, not inside this nursery's group.
        if failure is None or len(group.exceptions) != 1 or group.exceptions[0] is not failure:
            raise
    finally:
        with trio.CancelScope(shield=True):
            threads.total_tokens = 1  # so it waits for the calls that are under way: they use the directory
            await run_blocking(host.close_disk)
    if failure is not None:
        raise failure


@overload
def open_node(
    node_id: str, peers: Mapping[str, str], data_dir: str | os.PathLike[str],
    state_machine: CodedMachine[CommandT, ResultT_co, AnswerT_co], **options: Unpack[NodeOptions],
) -> AbstractAsyncContextManager[Node[CommandT, ResultT_co, AnswerT_co]]: ...


@overload
def open_node(
    node_id: str, peers: Mapping[str, str], data_dir: str | os.PathLike[str],
    state_machine: StateMachine[bytes, ResultT_co, AnswerT_co] | EntryMachine[ResultT_co, AnswerT_co],
    **options: Unpack[NodeOptions],
) -> AbstractAsyncContextManager[Node[bytes, ResultT_co, AnswerT_co]]: ...


@overload
def open_node(
    node_id: str, peers: Mapping[str, str], data_dir: str | os.PathLike[str], state_machine: Applies | AppliesEntries,
    **options: Unpack[NodeOptions],
) -> AbstractAsyncContextManager[Node[bytes, Any, Any]]: ...


@asynccontextmanager
async def open_node(
    node_id: str, peers: Mapping[str, str], data_dir: str | os.PathLike[str], state_machine: AnyMachine, *,
    bootstrap: bool = False, join: bool = False, config: Config | None = None, cluster: str = "default",
    group: str = DEFAULT_GROUP, listen: str | None = None, tls: TLSConfig | None = None,
    limits: TransportLimits | None = None, rng: Random | None = None, clock: Clock | None = None,
    wall_ms: Callable[[], int] = wall_clock_ms, files: Files | None = None, connect: Connector = connect_tcp,
    listeners: Sequence[Listener[Any]] = (), trace: Trace | None = None, access: Access | None = None,
    storage: MakeStorage = segments,
) -> AsyncIterator[Node[Any, Any, Any]]:
    """Open a host with one group: see ``open_host`` and ``Host.open_group``. It listens at its own address in
    ``peers``, or at ``listen`` if that differs. With ``connect`` that address may mean anything: then give ``listen``
    or ``listeners``, unless the group has one node.

    An empty directory starts only with ``bootstrap`` or ``join``.
    """
    node_id, peers = arguments.a_name("node_id", node_id), arguments.addresses("peers", peers)
    if listen is None and not listeners and connect is not connect_tcp and (join or len(peers) > 1):
        raise UsageError("say where to listen: with connect= give listen or listeners as well, or no peer reaches this "
                         "node")
    if listen is None and not listeners and connect is connect_tcp:
        if node_id not in peers:
            raise UsageError(f"say where to listen: {node_id!r} is not in peers, and listen is not given")
        listen = peers[node_id]
    async with open_host(
        data_dir, node_id=node_id, listen=listen, address=peers.get(node_id, ""), cluster=cluster,
        create=bootstrap or join, config=config, tls=tls,
        limits=limits, rng=rng, clock=clock, wall_ms=wall_ms, files=files, connect=connect, listeners=listeners,
        access=access, storage=storage,
    ) as host:
        yield await host.open_group(
            group, state_machine=state_machine, peers=peers, bootstrap=bootstrap, join=join, trace=trace)
