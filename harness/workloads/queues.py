"""Queues: clients send and receive values. At the end they take all that is left, or read everything."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import ClassVar, Final

import attrs

from harness.checkers.queues import ABANDON, POP
from harness.workloads.workload import LoadOp, LoadOutcome, Recipe

_TAKES: Final[Mapping[str, type]] = {
    "sends": float, "senders": int, "by_key": bool, "drain": bool, "read_all": bool}
TRIES: Final = 20
"""Tries of a last operation that is not answered."""


class QueueLoad:
    """``sends``: their share, 0.5; or ``senders``: so many clients only send, and the others only receive.

    ``dequeue``: a receive takes the message, even if its answer is lost. ``by_key``: receives name a queue, too.
    ``drain = false``: nothing is drained at the end. ``read_all``: all is read from its beginning.
    """

    takes: ClassVar[Mapping[str, type]] = {**_TAKES, "dequeue": bool}

    def __init__(self, recipe: Recipe) -> None:
        assert recipe.keys > 0
        self.recipe, self._sent = recipe, 0

    def next(self, client: int) -> LoadOp | None:
        args = self.recipe.args
        senders = int(args.get("senders", 0))
        sends = client < senders if senders else self.recipe.chance.random() < float(args.get("sends", 0.5))
        if not sends:
            return self.receive(self._key() if args.get("by_key") else None)
        self._sent += 1
        return LoadOp("send", self._key(), self.message(f"m{self._sent}"))

    def receive(self, key: str | None) -> LoadOp:
        """What a client asks to get a message."""
        return LoadOp("dequeue" if self.recipe.args.get("dequeue") else "receive", key)

    def message(self, body: str) -> object:
        """The message that is sent for a new value."""
        return body

    def _key(self) -> str:
        return f"q{self.recipe.chance.randrange(self.recipe.keys)}"

    def seen(self, client: int, op: LoadOp, told: LoadOutcome) -> None:
        """Ignores the outcome: no later operation depends on it."""

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        """Drains everything, and reads each queue from its beginning, until answered."""
        asked = [LoadOp("drain")] if self.recipe.args.get("drain", True) else []
        if self.recipe.args.get("read_all"):
            asked += [LoadOp("read-all", f"q{number}") for number in range(self.recipe.keys)]
        for op in asked:
            for _ in range(TRIES):
                if (yield op).type == "ok":
                    break


class OrderedLoad(QueueLoad):
    """A queue whose order by key is judged: every receive names a queue."""

    checks: ClassVar[Mapping[str, object]] = {"ordered": True}

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(attrs.evolve(recipe, args={"by_key": True, **recipe.args}))


class TransactionLoad(QueueLoad):
    """A queue of transactions; ``commits``: their share, 0.7. One that is rolled back is answered ``fail``.

    So it is ``denied`` if it comes all the same, and ``lost`` if one that was committed does not. The drain is told how
    long a decision may be open, ``open_ms`` (10000).
    """

    takes: ClassVar[Mapping[str, type]] = {**QueueLoad.takes, "commits": float, "open_ms": int}

    def message(self, body: str) -> object:
        commit = self.recipe.chance.random() < float(self.recipe.args.get("commits", 0.7))
        return {"body": body, "commit": commit}

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        """Reads as any queue's load does; the drain waits for decisions."""
        return _drained(super().last(), {"open_ms": int(self.recipe.args.get("open_ms", 10_000))})


class PopLoad(QueueLoad):
    """Messages are taken for ``invisible_ms`` (2000); ``abandons``: the share, 0.2, of those that are not acknowledged.

    ``pop`` acknowledges what it answers, up to ``most`` (8) messages. What ``abandon`` got counts as not received: it
    has to come again.
    """

    takes: ClassVar[Mapping[str, type]] = {**_TAKES, "abandons": float, "invisible_ms": int, "most": int}

    def receive(self, key: str | None) -> LoadOp:
        abandons = self.recipe.chance.random() < float(self.recipe.args.get("abandons", 0.2))
        return LoadOp(ABANDON if abandons else POP, key, {
            **self._hidden, "most": int(self.recipe.args.get("most", 8))})

    @property
    def _hidden(self) -> dict[str, int]:
        return {"invisible_ms": int(self.recipe.args.get("invisible_ms", 2_000))}

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        """Reads as any queue's load does; the drain is told how long a message may be invisible."""
        return _drained(super().last(), self._hidden)


class DelayedLoad(QueueLoad):
    """A queue whose messages are due later, by ``delay_ms``, two numbers of which one between is drawn.

    The drain is told the longest delay: a message that is not there yet is not lost.
    """

    checks: ClassVar[Mapping[str, object]] = {"delayed": True}
    takes: ClassVar[Mapping[str, type]] = {**QueueLoad.takes, "delay_ms": list}

    @property
    def _delays_ms(self) -> tuple[int, int]:
        least, most = self.recipe.args.get("delay_ms", [500, 3_000])
        return int(least), int(most)

    def message(self, body: str) -> object:
        return {"body": body, "delay_ms": self.recipe.chance.randint(*self._delays_ms)}

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        """Reads as any queue's load does; the drain waits for what is due."""
        return _drained(super().last(), {"delay_ms": self._delays_ms[1]})


def _drained(
    asked: Generator[LoadOp, LoadOutcome, None], value: Mapping[str, int],
) -> Generator[LoadOp, LoadOutcome, None]:
    """Yields the same operations, drains with another value."""
    op = next(asked, None)
    while op is not None:
        told = yield op._replace(value=value) if op.f == "drain" else op
        try:
            op = asked.send(told)
        except StopIteration:
            return
