"""Runs coroutines of shells that await nothing but requests, files, bells and time; without trio.

Each goes on in an event of its run. Who dies takes its coroutines along: they are never resumed, nor closed in order.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final

from remoting.wakeup import Bell

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess

E_TASK: Final = 70
Resume = Callable[[Any], None]


class Wait:
    """Awaits a call back. ``begin`` is given what to call, with the result or an exception; not before it returns."""

    def __init__(self, begin: Callable[[Resume], None]) -> None:
        self.begin = begin

    def __await__(self) -> Generator[Wait, Any, Any]:
        result = yield self
        if isinstance(result, Exception):
            raise result
        return result


class Tasks:
    """The tasks of one run. ``start_soon`` works as a nursery's."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._running: set[Coroutine[Any, Any, Any]] = set()

    def start_soon(self, call: Callable[..., Coroutine[Any, Any, Any]], *args: Any, name: object = None) -> None:
        self._process.later(0, E_TASK, lambda: self.run(call(*args)))

    def run(self, coroutine: Coroutine[Any, Any, Any], done: Callable[[Any], None] = lambda result: None) -> None:
        """Run a coroutine up to its first pause at once; ``done`` gets what it returns."""
        self._running.add(coroutine)
        self._step(coroutine, None, done)

    def _step(self, coroutine: Coroutine[Any, Any, Any], value: Any, done: Callable[[Any], None]) -> None:
        try:
            wait = coroutine.send(value)
        except StopIteration as end:
            self._running.discard(coroutine)
            done(end.value)
            return
        wait.begin(lambda result: self._step(coroutine, result, done))

    async def sleep(self, seconds: float) -> None:
        await Wait(lambda resume: self._process.later(round(seconds * 1e9), E_TASK, lambda: resume(None)))

    async def later(self, when: Callable[[Callable[[], None]], None]) -> None:
        """Wait until ``when`` calls back, perhaps at once."""
        await Wait(lambda resume: when(lambda: self._process.later(0, E_TASK, lambda: resume(None))))


class TurnBell(Bell):
    """Wakes the coroutine that waits for it."""

    __slots__ = ("_process", "_resume")

    def __init__(self, process: BrokerProcess) -> None:
        super().__init__()
        self._process = process
        self._resume: Resume | None = None

    def ring(self) -> None:
        resume, self._resume = self._resume, None
        if resume is None:
            self._rung = True
        else:
            self._process.later(0, E_TASK, lambda: resume(None))

    async def wait(self) -> None:
        if not self._rung:
            await Wait(self._begin)
        self._rung = False

    async def wait_for(self, wait_ns: int) -> None:
        """Wait for a ring, at most ``wait_ns``."""
        if not self._rung and wait_ns > 0:
            await Wait(lambda resume: self._begin_for(resume, wait_ns))
        self._rung = False

    def _begin(self, resume: Resume) -> None:
        self._resume = resume

    def _begin_for(self, resume: Resume, wait_ns: int) -> None:
        def over() -> None:
            if self._resume is resume:
                self._resume = None
                resume(None)

        self._resume = resume
        self._process.later(wait_ns, E_TASK, over)
