"""Brokers' requests to controllers: ids, registrations, elections, changes of the SyncStateSet, and reads of all these.

Each client is one broker in each group, and does to its groups what brokers and operators do, only more often.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar, Final

import attrs

from harness.checkers.controllers import ALTER, APPLY, ELECT, INFO, METADATA, NEXT, REGISTER, REST, SYNC
from harness.workloads.workload import LoadOp, LoadOutcome, Recipe

ADDRESS: Final = "10.79.0.{}:10911"
"""Address of the broker that a client plays. Nothing listens there, since controllers call no broker."""


@attrs.define
class Known:
    """Facts about one group that answers have told to any client."""

    ids: dict[int, int] = attrs.field(factory=dict)
    """Client -> its broker id."""
    registered: set[int] = attrs.field(factory=set)
    next_id: int | None = None
    master: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0


class ControllerLoad:
    """Operations of brokers, on groups ``g0`` and on.

    Shares of what a registered broker does: ``reads`` (0.45), ``elects`` (0.08), of which ``designates`` (0.5) name a
    master, ``rests`` (0.01), in which a broker is silent for ``rest_ms`` ([1500, 4000]), and applications for ids
    (``applies``, 0.05). The rest are alters of who is master, as far as anybody knows, and of others (``strangers``,
    0.1); ``stale`` (0.1) of them are of an epoch that is over.
    """

    takes: ClassVar[Mapping[str, type]] = {
        **dict.fromkeys(("reads", "elects", "designates", "rests", "applies", "strangers", "stale"), float),
        "rest_ms": list}

    def __init__(self, recipe: Recipe) -> None:
        assert recipe.keys > 0
        self.recipe, self.chance = recipe, recipe.chance
        self._groups = {f"g{number}": Known() for number in range(recipe.keys)}

    def _share(self, name: str, usual: float) -> bool:
        return self.chance.random() < float(self.recipe.args.get(name, usual))

    def next(self, client: int) -> LoadOp | None:
        key = f"g{self.chance.randrange(self.recipe.keys)}"
        known = self._groups[key]
        mine = known.ids.get(client)
        if mine is None:
            return LoadOp(NEXT, key) if known.next_id is None else self._apply(key, known.next_id, client)
        if client not in known.registered:
            return self._register(key, mine, client)
        if self._share("reads", 0.45):
            f = self.chance.choice((INFO, INFO, SYNC, NEXT, METADATA))
            return LoadOp(f, None if f == METADATA else key)
        if self._share("applies", 0.05):
            return self._apply(key, self.chance.randint(1, (known.next_id or mine) + 1), client)
        if self._share("rests", 0.01):
            least, most = self.recipe.args.get("rest_ms", [1_500, 4_000])
            return LoadOp(REST, key, {"broker": mine, "rest_ms": self.chance.randint(int(least), int(most))})
        if known.master is None or self._share("elects", 0.08):
            designate = known.master is not None and self._share("designates", 0.5)
            return LoadOp(ELECT, key, {"broker": mine, "designate": designate})
        if known.master != mine and not self._share("strangers", 0.1):
            return LoadOp(INFO, key) if self._share("reads", 0.45) else self._register(key, mine, client)
        return self._alter(key, known, mine)

    def _apply(self, key: str, broker_id: int, client: int) -> LoadOp:
        return LoadOp(APPLY, key, {"id": broker_id, "code": f"{ADDRESS.format(client)};{client}"})

    def _register(self, key: str, mine: int, client: int) -> LoadOp:
        return LoadOp(REGISTER, key, {"broker": mine, "address": ADDRESS.format(client)})

    def _alter(self, key: str, known: Known, mine: int) -> LoadOp:
        others = sorted(each for each in known.ids.values() if each != mine)
        wanted = [mine, *self.chance.sample(others, self.chance.randint(0, len(others)))]
        master_epoch, set_epoch = known.master_epoch, known.set_epoch
        if self._share("stale", 0.1):
            if self.chance.random() < 0.5:
                master_epoch = max(master_epoch - 1, 0)
            else:
                set_epoch = max(set_epoch - 1, 0)
        return LoadOp(ALTER, key, {
            "broker": mine, "master_epoch": master_epoch, "set": sorted(wanted), "set_epoch": set_epoch})

    def seen(self, client: int, op: LoadOp, told: LoadOutcome) -> None:
        """Learns ids and epochs; later operations begin from there."""
        known = self._groups.get(op.key)
        if known is None or not isinstance(told.value, Mapping):
            return
        if told.value.get("next") is not None:
            known.next_id = max(known.next_id or 1, told.value["next"])
        if told.type != "ok":
            return
        if op.f == APPLY:
            known.ids.setdefault(client, op.value["id"])
            known.next_id = max(known.next_id or 1, op.value["id"] + 1)
        elif op.f == REGISTER:
            known.registered.add(client)
        if op.f in (REGISTER, ELECT, INFO, SYNC):
            self._learn(known, told.value)
        elif op.f == ALTER and told.value["set_epoch"] >= known.set_epoch:
            known.members, known.set_epoch = frozenset(told.value["set"]), told.value["set_epoch"]

    def _learn(self, known: Known, value: Mapping[str, Any]) -> None:
        epoch = value.get("master_epoch")
        if epoch is None or epoch < known.master_epoch or value["set_epoch"] < known.set_epoch:
            return
        known.master, known.master_epoch = value.get("master"), epoch
        known.members, known.set_epoch = frozenset(value["set"]), value["set_epoch"]

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        """Reads every group once more, in each way."""
        for key in self._groups:
            for f in (INFO, SYNC, NEXT):
                yield LoadOp(f, key)
