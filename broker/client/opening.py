"""A block as an object: a task of its own is in it from ``open`` until ``close``, whoever calls them.

For programs that have a start and a stop, and no place for ``async with`` around all between. Knows trio alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import trio

from remoting.background import only_cancelled

_P = ParamSpec("_P")
_T = TypeVar("_T")


class KeptBlock(Generic[_T]):
    """One block, opened once. One that is never closed is left when trio ends, as if cancelled."""

    def __init__(self, block: AbstractAsyncContextManager[_T]) -> None:
        self._block = block
        self._scope = trio.CancelScope()
        self._entered, self._leave, self._left = trio.Event(), trio.Event(), trio.Event()
        self._value: list[_T] = []
        self._raised: BaseException | None = None
        self._failure: BaseException | None = None

    async def open(self) -> _T:
        """Enter the block and return its value. Raises what entering it raises; if cancelled, the block has been left
        again."""
        trio.lowlevel.spawn_system_task(self._run, name=f"{self._block!r}")
        await self._until(self._entered)
        if not self._value:
            await self.close()
        return self._value[0]

    async def close(self, raised: BaseException | None = None) -> None:
        """Leave the block, with ``raised`` if its user comes out of it so. Returns when it has been left.

        Raises what leaving it raises, ``raised`` itself perhaps; the second time nothing happens.
        """
        if not self._leave.is_set():
            self._raised = raised
            self._leave.set()
        await self._until(self._left)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _until(self, event: trio.Event) -> None:
        try:
            await event.wait()
        except trio.Cancelled:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._left.wait()
            raise

    async def _run(self) -> None:
        try:
            with self._scope:
                async with self._block as value:
                    self._value.append(value)
                    self._entered.set()
                    await self._leave.wait()
                    if self._raised is not None:
                        raise self._raised
        except BaseException as error:  # noqa: BLE001  # raised by ``close``
            if not only_cancelled(error):  # else trio ends
                self._failure = error
        finally:
            if not self._value and self._failure is None:
                self._failure = RuntimeError(f"{self._block!r} was not entered: trio ends")
            self._leave.set()
            self._entered.set()
            self._left.set()


class CanClose(Protocol):
    """An object that knows the task which keeps it open."""

    kept: KeptBlock[Any] | None


_C = TypeVar("_C", bound=CanClose)


class Opening(AbstractAsyncContextManager[_C]):
    """``async with`` it for a block, or ``await`` it for an object that is yours to close: with ``aclose``."""

    def __init__(self, block: AbstractAsyncContextManager[_C]) -> None:
        self._block = block

    async def __aenter__(self) -> _C:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)

    def __await__(self) -> Generator[None, None, _C]:
        return self._open().__await__()

    async def _open(self) -> _C:
        kept = KeptBlock(self._block)
        opened = await kept.open()
        opened.kept = kept
        return opened


def openable(block: Callable[_P, AbstractAsyncContextManager[_C]]) -> Callable[_P, Opening[_C]]:
    """Let the block that a function returns be awaited, too."""
    @wraps(block)
    def opening(*args: _P.args, **kwargs: _P.kwargs) -> Opening[_C]:
        return Opening(block(*args, **kwargs))

    return opening
