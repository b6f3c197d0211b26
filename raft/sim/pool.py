"""Plays seeds in several processes. Knows functions from a seed to a result, not what they play."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from typing import Any

from raft.sim.campaign import Result

Play = Callable[[int], Result]
_play: Play | None = None
"""The function that this worker process calls for each seed."""


def results(play: Play, seeds: Iterable[int], jobs: int, start: str = "spawn") -> Iterator[Result]:
    """Yield the results of ``play`` for each seed, in order. With ``start`` "fork" ``play`` need not be importable."""
    if jobs <= 1:
        yield from map(play, seeds)
        return
    with get_context(start).Pool(jobs, _begin, (play,)) as pool:
        # Seeds are handed out a few at a time, since a pool would read an endless range to its end.
        pending: list[Any] = []
        source = iter(seeds)
        while True:
            while len(pending) < 4 * jobs and (seed := next(source, None)) is not None:
                pending.append(pool.apply_async(_one, (seed,)))
            if not pending:
                return
            yield pending.pop(0).get()


def _begin(play: Play) -> None:
    global _play
    _play = play


def _one(seed: int) -> Result:
    assert _play is not None
    return _play(seed)
