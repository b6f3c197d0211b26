"""A part: one thing that a broker does for clients, with all that belongs to it.

A part has what it overrides; the broker asks and tells all parts, in the order of their list (``broker.parts``).
Everything but ``run`` is called on the event loop and returns at once. It knows nothing of what any part does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

import attrs
import trio

from broker.abroad.others import Abroad, Nowhere
from broker.acting.members import Group
from broker.acting.right import Always, Right
from broker.config import BrokerConfig
from broker.fellows import Alone, Fellows
from broker.journal import NEVER, Journal
from broker.puts import Outlet, Puts
from broker.rules import Rule
from broker.standing import Role, Standing
from broker.store.files import Files
from broker.tablefile import RunSync, TableFile
from remoting.bodies.consumers import MessageQueue
from remoting.body import Body
from remoting.connection import Connection
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

OWN_CODES: Final = range(61_000, 62_000)
"""Request codes that RocketMQ does not have: its servers answer them with 3. 61,001 and on are controllers', 61,011
is what members ask each other, 61,021 asks for filters, 61,041 and on are the acting ledger's, 61,061 is
of siblings alone."""


class QueuesOf(Protocol):
    """Tells the queues of topics, as name servers list them."""

    async def __call__(self, topic: str) -> Sequence[MessageQueue] | None:
        """Queues that can be read, on all brokers; None if there is no route."""


@attrs.frozen(kw_only=True)
class Shared:
    """The facilities that all parts of one broker share."""

    config: BrokerConfig
    """The configuration at the start; ``Part.configure`` tells of changes."""
    files: Files
    """The store's directory."""
    journal: Journal
    puts: Puts
    standing: Standing
    rng: Random
    now_ns: Callable[[], int]
    """The monotonic clock, in nanoseconds."""
    wall_ms: Callable[[], int]
    run_sync: RunSync
    """Runs the writing of tables, off the event loop."""
    queues_of: QueuesOf
    fellows: Fellows = attrs.field(factory=Alone)
    """The other brokers of the group."""
    ram_bytes: int = 1 << 62
    """Memory of the whole machine, in bytes."""
    reigns: Callable[[], Collection[int]] = tuple
    """Epochs of masters that wrote to the log, as far as it goes back; none where no controller counts them."""
    disk_used: Callable[[], float] = lambda: 0.0
    """Share of the store's disk that is in use, 0 to 1."""
    log_used: Callable[[], Mapping[str, float]] = dict
    """Share of the log's disks that is in use, by directory, where those are others than the store's."""
    group: Group = attrs.field(factory=Group)
    """The members of the group that live, where slaves may act for the master."""
    right: Right = attrs.field(factory=Always)
    """The right to deliver what is due, beside the role."""
    deliver_to: Outlet | None = None
    """The outlet for due messages, if it is not ``puts``."""
    abroad: Abroad = attrs.field(factory=Nowhere)
    """The masters of other groups."""

    @property
    def outlet(self) -> Outlet:
        """The outlet for due messages."""
        return self.puts if self.deliver_to is None else self.deliver_to

    @property
    def memory_bytes(self) -> int:
        """Messages that lie no further behind the end of the log count as in memory."""
        return self.ram_bytes * self.config.access_message_in_memory_max_ratio // 100

    def table_file(self, table: Callable[[], Body], *, path: str = "", pause_ms: int = 0) -> TableFile:
        """Return a ``TableFile`` below the store's directory."""
        return TableFile(self.files, table, self.run_sync, path=path, pause_ms=pause_ms)


@attrs.frozen
class Table:
    """One table of a part: its file here, and how a slave copies it from its master."""

    file: TableFile
    code: int
    """Code of the request that is answered with the whole table."""
    copy: Callable[[bytes], None]
    """Replaces the table by the master's, the body of that answer. Raises ``BodyError``."""
    join: Callable[[bytes], None] | None = None
    """Takes what is newer from a member's answer, when this broker comes back as master. Raises ``BodyError``. None: it
    does not ask for it."""


class Part:
    """One part: override what it has. Each method here does what a part without it does."""

    keys: ClassVar[type[attrs.AttrsInstance] | None] = None
    """Its own keys of the configuration: a frozen attrs class of ``remoting.daemon.keys.key`` fields."""
    passed_on: ClassVar[frozenset[int]] = frozenset()
    """Codes that clients send to the master: a broker that is master no longer passes them on."""
    tells_progress: ClassVar[frozenset[int]] = frozenset()
    """Codes whose answers tell how much was delivered. Slaves take a copy of one once their logs have the deliveries.
    """
    follows: ClassVar[bool] = False
    """True: it also ticks soon after the log moved, a part was told something, or ``Journal.stir`` was called."""

    # --- what it has -----------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        """Return handlers by request code; no other part has one of these codes."""
        return {}

    def tables(self) -> Sequence[Table]:
        """Return tables that are written to disk after each change, and that slaves copy."""
        return ()

    def copies(self) -> Mapping[int, Callable[[bytes], None]]:
        """Return what a slave asks of its master besides tables: by code, a function that takes the answer's body.

        The function may raise ``BodyError``. A master that answers with an error has nothing to tell."""
        return {}

    def joins(self) -> Mapping[int, Callable[[bytes], None]]:
        """Return what a master that comes back asks of each member besides tables, as ``copies`` does."""
        return {}

    def rules(self) -> Sequence[Rule]:
        """Return the part's rules for messages on their way in. They come after those that every broker has."""
        return ()

    def runtime_info(self) -> Mapping[str, str]:
        """Its lines in the answer to code 28."""
        return {}

    def metrics(self, page: Page) -> Iterable[Metric]:
        """Its lines on the page for Prometheus, made by ``page``."""
        return ()

    def keeps_from(self) -> int | None:
        """Return the offset from which it needs the log, however old that is. No file that holds it is deleted. None:
        it needs nothing."""
        return None

    # --- what it is told -------------------------------------------------------------------------------------

    def make_way(self, below: int) -> None:
        """Put forward what the part needs of old files, which end at ``below``: they are old enough to be deleted.

        Only a master does. Called again every ``clean_resource_interval_ms`` until no part keeps them."""

    def configure(self, config: BrokerConfig) -> None:
        """Take these values of keys that may change while a broker runs. Called once before it runs, too."""

    def role_changed(self, role: Role) -> None:
        """This broker has that role now, and ``Standing`` says so already."""

    def offered(self, codes: Collection[int]) -> None:
        """The master of this slave offers these codes of our own; none: it is RocketMQ's. Told every few seconds."""

    def writes_opened(self) -> None:
        """This broker is master; puts are taken by the end of this turn of the loop."""

    def writes_closed(self) -> None:
        """Puts are refused from now on, or were already."""

    def all_seen(self) -> None:
        """Consumers see all that this broker held when it became master."""

    def connection_closed(self, connection: Connection, reason: str) -> None:
        """The connection of a client, which it had perhaps registered by, ended."""

    def stopping(self) -> None:
        """The broker stops: answer requests that wait here, and let none wait any more."""

    def right_changed(self) -> None:
        """``Shared.right`` says something else, or the role whether this broker acts."""

    # --- what it does by itself ------------------------------------------------------------------------------

    def due_ns(self) -> int:
        """Return when ``tick`` is to be called next, in nanoseconds of the monotonic clock; 0: at once.

        It is asked whenever any part ticks, and when ``Journal.stir`` was called: a part that is due earlier than it
        said calls that. A broker in which nothing is due sleeps, so only a part with work under way says 0."""
        return NEVER

    def tick(self, now_ns: int) -> None:
        """Called when that time has come, up to ``JournalConfig.tick_interval_ms`` late."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do what it does in tasks of its own, until cancelled."""
        task_status.started()
        await trio.lowlevel.checkpoint()


class DeliveringPart(Part):
    """A part that delivers something by itself while this broker is master.

    It begins once consumers see all that the log held when the mastership began: that may be what it would deliver
    again."""

    def __init__(self, shared: Shared) -> None:
        self._standing, self._veil, self._writes_open = shared.standing, shared.journal.veil, False

    def begin(self) -> None:
        """Begin: from now on it may deliver."""
        raise NotImplementedError

    def end(self) -> None:
        """End: it may deliver no more. Called also if it has not begun."""
        raise NotImplementedError

    def writes_opened(self) -> None:
        self._writes_open = True
        if not self._veil.on:
            self._begin()

    def all_seen(self) -> None:
        if self._writes_open:
            self._begin()

    def _begin(self) -> None:
        if self._standing.role.delivers:
            self.begin()

    def writes_closed(self) -> None:
        self._writes_open = False
        self.end()


class SpecialService(DeliveringPart):
    """A part that a slave also runs in its master's place: the right to deliver is asked for again and again."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._right, self._clock_ns = shared.right, shared.now_ns
        self._runs = False

    def _may(self) -> bool:
        return self._standing.role.acts or (self._writes_open and not self._veil.on)

    def _begin(self) -> None:
        if not self._runs and self._may() and not self._right.why_not(self._clock_ns()):
            self._runs = self._standing.role.delivers
            super()._begin()

    def right_changed(self) -> None:
        if self._runs and (not self._may() or self._right.why_not(self._clock_ns())):
            self._runs = False
            self.end()
        self._begin()

    def writes_closed(self) -> None:
        self._runs = False
        super().writes_closed()


P = TypeVar("P", bound=Part)


class Parts:
    """An ordered list of parts. What is told to all is told in this order; a part may use those that stand before it.

    ``parts[TopicsPart]`` is the part of that class.
    """

    def __init__(self, now_ns: Callable[[], int], tick_by: Callable[[int], None] = lambda at_ns: None,
                 stir: Callable[[], None] = lambda: None, stirs: Callable[[], int] = lambda: 0) -> None:
        """``now_ns`` is a monotonic clock; the others are ``Journal``'s."""
        self._now_ns, self._tick_by, self._stir, self._stirs = now_ns, tick_by, stir, stirs
        self._stirs_seen, self._due_ns = -1, 0
        self._parts: list[Part] = []

    def add(self, part: Part) -> None:
        """Add a part after the others. Raises ``ValueError``: another part has one of its codes."""
        for code in part.handlers().keys() & self.handlers().keys():
            raise ValueError(f"code {code} belongs to {self._owner(code)} and to {type(part).__name__}")
        self._parts.append(part)

    def _owner(self, code: int) -> str:
        return next(type(part).__name__ for part in self if code in part.handlers())

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __getitem__(self, kind: type[P]) -> P:
        """Return the part of that class. Raises ``KeyError``: there is none yet."""
        for part in self._parts:
            if isinstance(part, kind):
                return part
        raise KeyError(f"no {kind.__name__} here: in PARTS a part must stand after those that it uses")

    # --- what they have --------------------------------------------------------------------------------------

    def handlers(self) -> dict[int, Handler]:
        return {code: handler for part in self for code, handler in part.handlers().items()}

    def tables(self) -> list[Table]:
        return [table for part in self for table in part.tables()]

    def copies(self) -> dict[int, Callable[[bytes], None]]:
        return {code: copy for part in self for code, copy in part.copies().items()}

    def tells_progress(self) -> frozenset[int]:
        return frozenset[int]().union(*(part.tells_progress for part in self))

    def all_joins(self) -> dict[int, Callable[[bytes], None]]:
        """Return the ``joins`` of all parts and tables together. Topics and groups come first, as parts do."""
        return {code: join for part in self for code, join in (
            *((table.code, table.join) for table in part.tables()), *part.joins().items()) if join is not None}

    def runtime_info(self) -> dict[str, str]:
        return {name: value for part in self for name, value in part.runtime_info().items()}

    def keeps_from(self) -> int | None:
        return min((kept for part in self if (kept := part.keeps_from()) is not None), default=None)

    # --- what they are told ----------------------------------------------------------------------------------

    def make_way(self, below: int) -> None:
        for part in self:
            part.make_way(below)
        self._stir()

    def configure(self, config: BrokerConfig) -> None:
        for part in self:
            part.configure(config)
        self._stir()

    def role_changed(self, role: Role) -> None:
        for part in self:
            part.role_changed(role)
        self._stir()

    def offered(self, codes: Collection[int]) -> None:
        for part in self:
            part.offered(codes)

    def writes_opened(self) -> None:
        for part in self:
            part.writes_opened()
        self._stir()

    def writes_closed(self) -> None:
        for part in self:
            part.writes_closed()
        self._stir()

    def all_seen(self) -> None:
        for part in self:
            part.all_seen()
        self._stir()

    def connection_closed(self, connection: Connection, reason: str) -> None:
        for part in self:
            part.connection_closed(connection, reason)

    def right_changed(self) -> None:
        for part in self:
            part.right_changed()
        self._stir()

    def stopping(self) -> None:
        for part in self:
            part.stopping()

    # --- what they do by themselves --------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Tick the parts that are due; ``tick_by`` is told when the next one is. While nothing happens no part is asked
        before that."""
        stirs = self._stirs()
        stirred, self._stirs_seen = stirs != self._stirs_seen, stirs
        if stirred or self._due_ns <= max(now_ns, self._now_ns()):
            for part in self:
                due_ns = part.due_ns()
                now_ns = max(now_ns, self._now_ns())  # time went on since the tick began, and a part may be due by now
                if due_ns <= now_ns or (stirred and part.follows):
                    part.tick(now_ns)
            self._due_ns = min((part.due_ns() for part in self), default=NEVER)
        self._tick_by(self._due_ns)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write tables until cancelled; then what the tables' files lack is written."""
        async with trio.open_nursery() as nursery:
            for table in self.tables():
                await nursery.start(table.file.run)
            self.tick(self._now_ns())
            for part in self:
                await nursery.start(part.run)
            task_status.started()
            await trio.sleep_forever()


class PartClass(Protocol):
    """A class of parts, made of what all share and of the parts that stand before it."""

    @property
    def keys(self) -> type[attrs.AttrsInstance] | None: ...

    @property
    def passed_on(self) -> frozenset[int]: ...

    def __call__(self, shared: Shared, before: Parts) -> Part: ...
