"""Trio as a guest on an asyncio loop: both take turns in one thread, and calls go from one to the other.

The first user of a loop starts it, the last ends it. Where trio runs there already it is used as it is. What asyncio
programs lean on is promised here: a cancelled call has ended when its task goes on, an exception comes out as it is,
and nothing of trio's (``Cancelled``) gets through. Source: "Using guest mode" of trio's manual.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

import trio

from broker.client.opening import KeptBlock
from remoting.background import only_cancelled

if TYPE_CHECKING:
    import outcome

logger = logging.getLogger("broker.client")

_P = ParamSpec("_P")
_T = TypeVar("_T")
_U = TypeVar("_U")

GRACE_S: Final = 1.0
"""Clients that the loop's end finds open: how long their own blocks have to close them, before trio ends under them."""


class Guest:
    """Trio on one asyncio loop. ``enter`` before the first ``call``, ``leave`` after the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._users = 0
        self._over: asyncio.Future[None] | None = None
        """Done when the trio run is; None where that is somebody else's."""
        self._leaving = trio.Event()
        self._unused = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    # --- life ------------------------------------------------------------------------------------------------

    @staticmethod
    async def enter() -> Guest:
        """Return the guest of the running loop; it is begun if there is none."""
        loop = asyncio.get_running_loop()
        while (guest := _GUESTS.get(loop)) is not None and guest._leaving.is_set():
            await guest._ended()
        if guest is None:
            guest = _GUESTS[loop] = Guest(loop)
            if not trio.lowlevel.in_trio_run():
                guest._begin()
        guest._users += 1
        guest._unused.clear()
        return guest

    async def leave(self) -> None:
        """Leave. The last user ends the trio run, and waits for that."""
        self._users -= 1
        if not self._users:
            self._unused.set()
            self._leaving.set()
            await self._ended()

    @property
    def over(self) -> bool:
        """Return whether trio has ended here, and with it all that was open."""
        return self._over is not None and self._over.done()

    def _begin(self) -> None:
        self._over = self._loop.create_future()
        trio.lowlevel.start_guest_run(
            self._leaving.wait, run_sync_soon_threadsafe=self._loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self._loop.call_soon, done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True)
        self._keeper = self._loop.create_task(self._keep(), name="trio on this loop")

    def _done(self, how: outcome.Outcome[None]) -> None:
        assert self._over is not None
        self._over.set_result(None)
        try:
            how.unwrap()
        except BaseException:  # there is nobody to raise it to
            logger.exception("trio ended on this asyncio loop; its clients are closed")

    async def _ended(self) -> None:
        """Wait for the end of trio, however often this is cancelled: the loop may end when this returns."""
        if self._over is not None:
            await _through(self._over)
        if _GUESTS.get(self._loop) is self:
            del _GUESTS[self._loop]

    async def _keep(self) -> None:
        """End trio before its loop ends: a loop that ends cancels its tasks, this one too, and waits for them."""
        assert self._over is not None
        try:
            await asyncio.shield(self._over)
        except asyncio.CancelledError:
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._unused.wait(), GRACE_S)
            if self._users:
                logger.warning("%d clients are open as their asyncio loop ends; `aclose` them before", self._users)
            self._leaving.set()
            await self._ended()
            raise

    # --- from asyncio to trio --------------------------------------------------------------------------------

    async def call(self, function: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``function`` on trio and wait for what it comes to. Cancelled, it is cancelled there, and has ended when
        this raises ``CancelledError``. Raises ``RuntimeError`` when the loop's trio has ended."""
        if trio.lowlevel.in_trio_task():
            return await function(*args, **kwargs)
        if self.over:
            raise RuntimeError("the client is closed: trio has ended on this asyncio loop")
        came: asyncio.Future[_T] = self._loop.create_future()
        over: asyncio.Future[None] = self._loop.create_future()
        scope = trio.CancelScope()

        async def carry() -> None:
            try:
                with scope:
                    value = await function(*args, **kwargs)
                    if not came.done():
                        came.set_result(value)
            except BaseException as error:  # raised where it is waited for; in trio it would end everything
                if only_cancelled(error):
                    raise
                if not came.done():
                    came.set_exception(error)
            finally:
                if not came.done():
                    came.set_exception(RuntimeError("the client was closed meanwhile"))
                    came.exception()
                over.set_result(None)

        trio.lowlevel.spawn_system_task(carry, name=function, context=copy_context())
        try:
            return await came
        except asyncio.CancelledError:
            scope.cancel()
            await _through(over)
            if not came.cancelled():
                came.exception()  # else asyncio logs that nobody looked at it
            raise

    async def opened(self, kept: KeptBlock[_T]) -> _T:
        """Open a block; if this is cancelled, the block has been left."""
        try:
            return await self.call(kept.open)
        except asyncio.CancelledError as error:
            await self.closed(kept, error)
            raise

    async def closed(self, kept: KeptBlock[Any], error: BaseException | None) -> None:
        """Leave a block that its user leaves with ``error``; the user raises that, not this method."""
        if self.over:
            return  # it ended with trio
        trace = error.__traceback__ if error is not None else None
        try:
            await self.call(kept.close, error)
        except BaseException as raised:
            if raised is not error:
                raise
            raised.__traceback__ = trace  # without the frames of this module

    # --- from trio to asyncio --------------------------------------------------------------------------------

    def asking(self, function: Callable[[_U], Awaitable[_T]]) -> Callable[[_U], Awaitable[_T]]:
        """Let trio call ``function`` of an asyncio program: each call is an asyncio task."""
        async def ask(about: _U) -> _T:
            async def answer() -> _T:
                return await function(about)

            task, this = self._loop.create_task(answer()), trio.lowlevel.current_task()
            raise_cancelled: Callable[[], Any] | None = None

            def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
                nonlocal raise_cancelled
                raise_cancelled = raise_cancel
                task.cancel()
                return trio.lowlevel.Abort.FAILED

            task.add_done_callback(lambda _: trio.lowlevel.reschedule(this))
            await trio.lowlevel.wait_task_rescheduled(abort)
            if task.cancelled():
                if raise_cancelled is not None:
                    raise_cancelled()
                raise RuntimeError(f"{function!r} was cancelled")
            return task.result()

        return ask


class HeldBlock(AbstractAsyncContextManager[_U], Generic[_T, _U]):
    """A block of trio's as one of asyncio's. Enter and leave it from any task."""

    def __init__(self, guest: Guest, block: AbstractAsyncContextManager[_T], made: Callable[[Guest, _T], _U]) -> None:
        self._guest, self._kept, self._made = guest, KeptBlock(block), made

    async def __aenter__(self) -> _U:
        return self._made(self._guest, await self._guest.opened(self._kept))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        await self._guest.closed(self._kept, error)


async def _through(over: asyncio.Future[None]) -> None:
    """Wait for ``over``, cancelled or not; a cancellation is raised after that."""
    cancelled: asyncio.CancelledError | None = None
    while not over.done():
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


_GUESTS: Final[dict[asyncio.AbstractEventLoop, Guest]] = {}
