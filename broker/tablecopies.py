"""A slave's copies of its master's tables: those that the parts say are copied, each asked for by its code.

It asks at once when a master is followed or its log brings messages of an unknown topic, then every few seconds. Codes
of our own are asked only of a master that offers them with its topics. What tells how much was delivered waits until
the log here has what the master's had then: else this broker would be master without the deliveries. Consumers that
find this broker as their master begin where the last copy ends, and never before what they committed here. Source:
``SlaveSynchronize`` of RocketMQ. It knows no table, and of a role only which master this slave has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import ClassVar, Final, Self

import trio

from broker.journal import Journal
from broker.part import OWN_CODES, Part, Parts
from broker.standing import Role
from broker.sure import Sure
from remoting.bodies.namesrv import KVTable
from remoting.client import Client, checked
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError, RemotingError
from remoting.fields import decimal
from remoting.wakeup import Bell

logger = logging.getLogger("broker.sync")

TIMEOUT_MS: Final = 30_000
"""Time-out for one table."""
PERIOD_S: Final = 3.0
OFFERED: Final = "__QUORATE_CODES"
"""Ours, a field of the answer to 21: codes of our own that its sender may be asked. Java ignores it."""
LOG_END: Final = "__QUORATE_LOG_END"
"""Ours, a field of answers that tell progress: where their sender's log ends. Java ignores it."""
_TOPICS: Final = int(RequestCode.GET_ALL_TOPIC_CONFIG)


def offering(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """Let the handler for topics say, too, which codes of our own are among ``handlers``; returns all of them."""
    tell, said = handlers[_TOPICS], " ".join(str(code) for code in sorted(handlers) if code in OWN_CODES)

    def answer(connection: Connection, command: Command) -> Command:
        made = tell(connection, command)
        assert isinstance(made, Command), "it is answered at once"
        made.ext[OFFERED] = said
        return made

    return {**handlers, _TOPICS: answer}


def offered(answer: Command) -> frozenset[int]:
    """Return the codes of our own that the sender of this answer may be asked; only the answer to 21 says it."""
    return frozenset(int(code) for code in answer.ext.get(OFFERED, "").split() if code.isdecimal())


def saying_the_end(handlers: Mapping[int, Handler], codes: Iterable[int],
                   end: Callable[[], int]) -> dict[int, Handler]:
    """Let these handlers say, too, where the log ends: what they tell was made no later. Returns all handlers."""

    def saying(tell: Handler) -> Handler:
        def answer(connection: Connection, command: Command) -> Command:
            made = tell(connection, command)
            assert isinstance(made, Command), "it is answered at once"
            made.ext[LOG_END] = str(end())
            return made

        return answer

    return {**handlers, **{code: saying(handlers[code]) for code in codes}}


def ours_last(codes: Iterable[int]) -> list[int]:
    """Sort codes as they are asked: our own come last, since only an answer to others says that they are offered."""
    return sorted(codes, key=lambda code: code in OWN_CODES)


class TableCopies(Part):
    """Copies tables while the role names a master."""

    follows: ClassVar[bool] = True

    def __init__(self, client: Client, tables: Mapping[int, Callable[[bytes], None]],
                 progress: Mapping[int, Callable[[bytes], None]] = {}, *, period_s: float = PERIOD_S,
                 offers: Callable[[Collection[int]], None] = lambda codes: None, bound: Iterable[int] = (),
                 held: Callable[[], int] = lambda: 0) -> None:
        """``tables``: by code, the function that takes the answer's body, or raises ``BodyError``. ``progress``: the
        same for what a master may not have. ``offers`` hears in each round which codes of our own the master offers.
        Answers to ``bound`` count once this broker has the log as far as the master had; ``held`` says how far that is.
        """
        self.done = 0
        """Whole rounds without an error."""
        self._client, self._tables, self._period_s = client, {**tables, **progress}, period_s
        self._missing, self._offers = frozenset(progress), offers
        self._held = held
        self._waiting = {code: Sure(b"") for code in bound}
        self._master: str | None = None
        self._bell = Bell()
        self._scope = trio.CancelScope()
        self._problem = ""

    @classmethod
    def of(cls, parts: Parts, journal: Journal, client: Client, *, period_s: float = PERIOD_S) -> Self:
        """Make the copies of all tables of these parts, which stand above this journal."""
        made = cls(client, {table.code: table.copy for table in parts.tables()}, parts.copies(), period_s=period_s,
                   offers=parts.offered, bound=parts.tells_progress(), held=lambda: journal.confirm_offset)
        journal.was_cut.join("parts", made.cut)
        return made

    def role_changed(self, role: Role) -> None:
        self.follow(role.master_address or None)
        self.cut(-1)

    def follow(self, master_address: str | None) -> None:
        """Follow that master. A copy that is under way from another one is dropped."""
        if master_address != self._master:
            self._master = master_address
            self._scope.cancel()
            self._bell.ring()

    def look(self) -> None:
        """Copy now, not after the pause: the master probably has something new."""
        if self._master is not None:
            self._bell.ring()

    def cut(self, end: int) -> None:
        """The log here was cut, or its master is another: what waits for more of the former one is void."""
        for waiting in self._waiting.values():
            waiting.cut(end)

    def tick(self, now_ns: int) -> None:
        for code, waiting in self._waiting.items():
            if waiting.flushed(self._held()):
                try:
                    self._tables[code](waiting.value)
                except (BodyError, OSError) as error:
                    logger.warning("a table is not copied: %s", error)

    def take(self, code: int, body: bytes, end: int) -> None:
        """Take an answer, or keep it until the log here reaches ``end``. Raises ``BodyError`` and ``OSError``."""
        if code in self._waiting:
            self._waiting[code].offer(end, partial(bytes, body))
            self.tick(0)
        else:
            self._tables[code](body)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            with trio.move_on_after(self._period_s):
                await self._bell.wait()
            await trio.lowlevel.checkpoint()
            if self._master is not None:
                with trio.CancelScope() as self._scope:
                    await self._round(self._master)

    async def _round(self, master: str) -> None:
        problems = []
        codes: frozenset[int] = frozenset()
        for code in ours_last(self._tables):
            if code in OWN_CODES and code not in codes:
                continue
            try:
                answer = await self._ask(master, code)
                if answer is None:
                    continue
                if code == _TOPICS:
                    codes = offered(answer)
                    self._offers(codes)
                self.take(code, answer.body, await self._end(master, answer) if code in self._waiting else 0)
            except (RemotingError, BodyError, OSError) as error:
                problems.append(str(error))
        self.done += not problems
        problem = "; ".join(dict.fromkeys(problems))
        if problem != self._problem:
            self._problem = problem
            if problem:
                logger.warning("tables not copied", extra={"master": master, "why": problem})
            else:
                logger.info("tables copied", extra={"master": master})

    async def _ask(self, master: str, code: int) -> Command | None:
        """Ask the master for one table; None: a Java master has no such table."""
        answer = await self._client.call(master, request(code), timeout_ms=TIMEOUT_MS)
        await trio.lowlevel.checkpoint_if_cancelled()  # this broker may have become master in the answer's turn
        if code in self._missing and answer.code != ResponseCode.SUCCESS:
            return None
        return checked(answer, master)

    async def _end(self, master: str, answer: Command) -> int:
        """Where the master's log ended when it answered, or later. RocketMQ's says that only where it is asked."""
        said = decimal(answer.ext.get(LOG_END, ""))
        if said is None:
            state = checked(await self._client.call(
                master, request(RequestCode.GET_BROKER_RUNTIME_INFO), timeout_ms=TIMEOUT_MS), master)
            await trio.lowlevel.checkpoint_if_cancelled()
            said = decimal(KVTable.from_json(state.body).table.get("commitLogMaxOffset", ""))
        if said is None:
            raise BodyError("it does not say where its log ends")
        return said
