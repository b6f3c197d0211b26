"""The client on asyncio, as ``connect`` gives it: each method is that of trio's client, called through the guest.

Nothing is decided here, and nothing sent. A method is one line, with the types and the words of the original. What
waits for nothing, an acknowledgement for one, is called as it is: both loops are of one thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import update_wrapper, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import trio

from broker.client.aio.guest import Guest, HeldBlock
from broker.client.client import Client
from broker.client.client import connect as _connect
from broker.client.message import Received
from broker.client.messages import TURNS, Handler, Messages, handle
from broker.client.opening import KeptBlock
from broker.client.popping import Handler as PopHandler
from broker.client.popping import Popped, Popper
from broker.client.popping import handle as handle_popped
from broker.client.pulling import Puller
from broker.client.transactions import Checker, Transaction, Transactions

if TYPE_CHECKING:
    from broker.client.message import Origin
    from remoting.bodies.consumers import MessageQueue

_P = ParamSpec("_P")
_T = TypeVar("_T")
_U = TypeVar("_U")


class Over(Generic[_T]):
    """An object of trio's client, and the guest by which it is reached."""

    def __init__(self, guest: Guest, inner: _T) -> None:
        self.guest, self._inner = guest, inner


def called(method: Callable[Concatenate[_T, _P], Coroutine[Any, Any, _U]]) -> Callable[
    Concatenate[Over[_T], _P], Coroutine[Any, Any, _U]]:
    """Make a method of asyncio from a coroutine of trio's client."""
    @wraps(method)
    async def call(self: Over[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _U:
        return await self.guest.call(method, self._inner, *args, **kwargs)

    return call


def plain(method: Callable[Concatenate[_T, _P], _U]) -> Callable[Concatenate[Over[_T], _P], _U]:
    """Make a method from one of trio's client that waits for nothing."""
    @wraps(method)
    def call(self: Over[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _U:
        return method(self._inner, *args, **kwargs)

    return call


_V = TypeVar("_V")


def held(
    method: Callable[Concatenate[_T, _P], AbstractAsyncContextManager[_U]], made: Callable[[Guest, _U], _V],
) -> Callable[Concatenate[Over[_T], _P], AbstractAsyncContextManager[_V]]:
    """Make a block of asyncio from one of trio; ``made`` makes its value."""
    @wraps(method)
    def call(self: Over[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> AbstractAsyncContextManager[_V]:
        return HeldBlock(self.guest, method(self._inner, *args, **kwargs), made)

    return call


def in_words_of(method: Callable[..., object]) -> Callable[[_V], _V]:
    """Give a method that is written out here the name, docstring and signature of the original."""
    def worded(here: _V) -> _V:
        update_wrapper(cast(Callable[..., object], here), method)
        return here

    return worded


def _of_task(handler: Callable[[_U], Awaitable[object]]) -> Callable[[_U], Awaitable[object]]:
    """Let a handler fail that comes out cancelled, as by something that it waited for, while its task is not: a group
    of tasks takes that for an end in good order, and would have one task less."""
    async def handle_one(message: _U) -> None:
        try:
            await handler(message)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError(f"{handler!r} was cancelled") from error

    return handle_one


class _Answering:
    """``Origin`` of a message that an asyncio task holds: giving it back is trio's work."""

    def __init__(self, guest: Guest, origin: Origin) -> None:
        self.guest, self._origin = guest, origin

    @property
    def dropped(self) -> bool:
        """Return whether the original is dropped."""
        return self._origin.dropped

    def acknowledged(self, message: Received) -> None:
        self._origin.acknowledged(message)

    async def later(self, message: Received, level: int) -> None:
        await self.guest.call(self._origin.later, message, level)


class AioMessages(Over[Messages]):
    __doc__ = Messages.__doc__

    def __init__(self, guest: Guest, inner: Messages) -> None:
        super().__init__(guest, inner)
        self._turns = 0

    @property
    def queues(self) -> list[MessageQueue]:
        return self._inner.queues

    def __aiter__(self) -> AsyncIterator[Received]:
        return self

    async def __anext__(self) -> Received:
        # A message is taken in this very step of the task, so a cancelled wait loses none.
        self._turns += 1
        if not self._turns % TURNS:
            await asyncio.sleep(0)
        while (message := self._inner.taken()) is None:
            if self._inner.closed:
                raise StopAsyncIteration
            try:
                await self.guest.call(self._inner.something)
            except asyncio.CancelledError:
                self._inner.put(())  # this task may have been woken in another's place
                raise
        message.answered_by(self._answering)
        return message

    def _answering(self, origin: Origin) -> Origin:
        return origin if isinstance(origin, _Answering) else _Answering(self.guest, origin)

    @in_words_of(Messages.for_each)
    async def for_each(self, handler: Handler, *, tasks: int = 16) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(handle(self, _of_task(handler)))


async def _polled(
    timeout_ms: float, something: Callable[[float], Coroutine[Any, Any, None]], taken: Callable[[], list[_V]],
    over: Callable[[], bool],
) -> list[_V]:
    """Wait until something is there and take it. Another task may take it first: then the rest of the time goes on."""
    until, left_s = trio.current_time() + timeout_ms / 1e3, timeout_ms / 1e3
    while True:
        await something(left_s * 1e3)
        found, left_s = taken(), until - trio.current_time()  # in this very step of the task, as of ``Messages``
        if found or left_s <= 0 or over():
            return found


class AioPopper(Over[Popper]):
    __doc__ = Popper.__doc__

    ack = called(Popper.ack)
    change = called(Popper.change)
    give_back = called(Popper.give_back)

    @property
    def group(self) -> str:
        """Return the group. Its messages need it as they tell what became of them."""
        return self._inner.group

    def __aiter__(self) -> AsyncIterator[Popped]:
        return self

    async def __anext__(self) -> Popped:
        await asyncio.sleep(0)
        while (message := self._inner.taken()) is None:
            if self._inner.closed:
                raise StopAsyncIteration
            await self._something()
        message.answered_by(self)
        return message

    @in_words_of(Popper.poll)
    async def poll(self, timeout_ms: float = 5_000, most: int = 32) -> list[Popped]:
        inner = self._inner
        found = await _polled(
            timeout_ms, self._something, lambda: inner.several(most), lambda: inner.closed or most < 1)
        for message in found:
            message.answered_by(self)
        return found

    async def _something(self, timeout_ms: float = math.inf) -> None:
        """Wait as ``Popper.something``. Another task may take what came before this one has its turn."""
        try:
            await self.guest.call(self._inner.something, timeout_ms)
        except asyncio.CancelledError:
            self._inner.pass_on()
            raise

    @in_words_of(Popper.for_each)
    async def for_each(self, handler: PopHandler, *, tasks: int = 16) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(handle_popped(self, _of_task(handler)))


class AioPuller(Over[Puller]):
    __doc__ = Puller.__doc__

    queues = called(Puller.queues)
    assign = called(Puller.assign)
    seek = plain(Puller.seek)
    position = plain(Puller.position)
    commit = called(Puller.commit)
    committed = called(Puller.committed)

    @in_words_of(Puller.poll)
    async def poll(self, timeout_ms: float = 5_000, most: int = 32) -> list[Received]:
        async def something(left_ms: float) -> None:
            await self.guest.call(self._inner.something, left_ms)

        return await _polled(timeout_ms, something, lambda: self._inner.taken(most), lambda: most < 1)


def _as_it_is(_: Guest, transaction: Transaction) -> Transaction:
    return transaction


class AioTransactions(Over[Transactions]):
    __doc__ = Transactions.__doc__

    begin = held(Transactions.begin, _as_it_is)


class AioClient(Over[Client]):
    __doc__ = Client.__doc__

    def __init__(self, guest: Guest, inner: Client) -> None:
        super().__init__(guest, inner)
        self._left = False

    @property
    def id(self) -> str:
        return self._inner.id

    send = called(Client.send)
    send_oneway = called(Client.send_oneway)
    send_batch = called(Client.send_batch)
    request = called(Client.request)
    reply = called(Client.reply)
    recall = called(Client.recall)
    consume = held(Client.consume, AioMessages)
    pop = held(Client.pop, AioPopper)
    pull = held(Client.pull, AioPuller)
    queues = called(Client.queues)
    query = called(Client.query)
    query_id = called(Client.query_id)
    view = called(Client.view)
    min_offset = called(Client.min_offset)
    max_offset = called(Client.max_offset)
    search_offset = called(Client.search_offset)
    earliest_time_ms = called(Client.earliest_time_ms)
    create_topic = called(Client.create_topic)

    @in_words_of(Client.transactions)
    def transactions(
        self, checker: Checker, *, topics: Sequence[str] = (), checks_at_once: int = 16,
    ) -> AbstractAsyncContextManager[AioTransactions]:
        block = self._inner.transactions(self.guest.asking(checker), topics=topics, checks_at_once=checks_at_once)
        return HeldBlock(self.guest, block, AioTransactions)

    @in_words_of(Client.aclose)
    async def aclose(self) -> None:
        try:
            if not (self._left or self.guest.over):
                await self.guest.call(Client.aclose, self._inner)
        finally:
            if self._inner.kept is not None:
                await self.left()

    async def left(self) -> None:
        """Note the client's end, however it came: the guest has one user less."""
        if not self._left:
            self._left = True
            await self.guest.leave()


class AioOpening(AbstractAsyncContextManager[AioClient]):
    """``async with`` it for a block, or ``await`` it for an object that is yours to close: with ``aclose``."""

    def __init__(self, block: AbstractAsyncContextManager[Client]) -> None:
        self._kept = KeptBlock(block)
        self._client: AioClient | None = None

    async def __aenter__(self) -> AioClient:
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        assert self._client is not None
        try:
            await self._client.guest.closed(self._kept, error)
        finally:
            await self._client.left()

    def __await__(self) -> Generator[Any, Any, AioClient]:
        return self._open(owned=True).__await__()

    async def _open(self, *, owned: bool = False) -> AioClient:
        guest = await Guest.enter()
        try:
            inner = await guest.opened(self._kept)
        except BaseException:
            await guest.leave()
            raise
        if owned:
            inner.kept = self._kept
        return AioClient(guest, inner)


def _opening(block: Callable[_P, AbstractAsyncContextManager[Client]]) -> Callable[_P, AioOpening]:
    @wraps(block)
    def opening(*args: _P.args, **kwargs: _P.kwargs) -> AioOpening:
        return AioOpening(block(*args, **kwargs))

    return opening


connect = _opening(_connect)
