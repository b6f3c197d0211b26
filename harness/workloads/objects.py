"""Registers, sets, logs, stores and locks: operations of objects that linearizability judges."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from harness.workloads.workload import LoadOp, LoadOutcome, Recipe


class Objects:
    """The common base of these workloads: named keys, unique values, and a last read of each key."""

    reading = "read"
    takes: ClassVar[Mapping[str, type]] = {}

    def __init__(self, recipe: Recipe) -> None:
        assert recipe.keys > 0
        self.recipe, self.chance = recipe, recipe.chance
        self._written = 0

    def key(self) -> str:
        """One of the keys, drawn."""
        return f"k{self.chance.randrange(self.recipe.keys)}"

    def fresh(self) -> int:
        """A value that was never written: a read of it tells which write it saw."""
        self._written += 1
        return self._written

    def share(self, name: str, usual: float) -> bool:
        """Draws whether an event happens this time, by the scenario's share."""
        return self.chance.random() < float(self.recipe.args.get(name, usual))

    def seen(self, client: int, op: LoadOp, told: LoadOutcome) -> None:
        """Ignores the outcome: no later operation depends on it."""

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        """Reads every key once more."""
        for number in range(self.recipe.keys):
            yield LoadOp(self.reading, f"k{number}")


class RegisterLoad(Objects):
    """Reads and writes registers. ``reads``: their share, 0.5. ``cas``: a share of the rest, by default 0."""

    takes: ClassVar[Mapping[str, type]] = {"reads": float, "cas": float}

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._known: dict[str, Any] = {}

    def next(self, client: int) -> LoadOp | None:
        key = self.key()
        if self.share("reads", 0.5):
            return LoadOp("read", key)
        if self.share("cas", 0.0):
            return LoadOp("cas", key, [self._known.get(key), self.fresh()])
        return LoadOp("write", key, self.fresh())

    def seen(self, client: int, op: LoadOp, told: LoadOutcome) -> None:
        """Notes what was read: the next compare-and-set begins from it."""
        if op.f == "read" and told.type == "ok":
            self._known[op.key] = told.value


class SetLoad(Objects):
    """Adds elements, and reads whole sets. ``reads``: their share, 0.2."""

    takes: ClassVar[Mapping[str, type]] = {"reads": float}

    def next(self, client: int) -> LoadOp | None:
        return LoadOp("read", self.key()) if self.share("reads", 0.2) else LoadOp("add", self.key(), self.fresh())


class LogLoad(Objects):
    """Appends values, and reads whole logs. ``reads``: their share, 0.2."""

    takes: ClassVar[Mapping[str, type]] = {"reads": float}

    def next(self, client: int) -> LoadOp | None:
        return LoadOp("read", self.key()) if self.share("reads", 0.2) else LoadOp("append", self.key(), self.fresh())


class StoreLoad(Objects):
    """Gets, puts and deletes. ``txn``: the share of transactions on one key, by default 0."""

    reading = "get"
    takes: ClassVar[Mapping[str, type]] = {"reads": float, "deletes": float, "txn": float}

    def next(self, client: int) -> LoadOp | None:
        key = self.key()
        if self.share("txn", 0.0):
            return LoadOp("txn", key, [["r", key, None], ["w", key, self.fresh()]])
        if self.share("reads", 0.5):
            return LoadOp("get", key)
        return LoadOp("delete", key) if self.share("deletes", 0.1) else LoadOp("put", key, self.fresh())


class LockLoad(Objects):
    """Takes locks and gives them back. Nothing is asked at the end."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._holds: dict[int, str] = {}

    def next(self, client: int) -> LoadOp | None:
        held = self._holds.get(client)
        return LoadOp("acquire", self.key()) if held is None else LoadOp("release", held)

    def seen(self, client: int, op: LoadOp, told: LoadOutcome) -> None:
        """Notes a client's lock; after an unknown outcome the client is another process, which holds none."""
        if op.f == "acquire" and told.type == "ok":
            self._holds[client] = op.key
        elif told.type == "info" or (op.f == "release" and told.type == "ok"):
            self._holds.pop(client, None)

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        yield from ()
