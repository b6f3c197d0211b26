"""The keyed decision tape from which a simulation draws every chance, so that a failing run is a small file.

A decision belongs to a named stream and has a boring value (no loss, usual latency, no fault). Only deviations
from it are kept, by their number in the stream. Streams count on their own: taking one deviation away leaves all
other streams as they were, and that is what makes shrinking by delta debugging work.

Seeds of streams are text given to ``random.Random``, which digests it with SHA-512: the same on every Python and
under every PYTHONHASHSEED. Of ``Random`` only ``random()`` and ``getrandbits()`` are used, whose sequences are fixed.
This module knows nothing of nodes, time or networks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from raft.errors import UsageError

T = TypeVar("T")
Value = Any
"""A value that JSON can hold: None, bool, int, float, str, list."""
Chance = Callable[[], float]
"""Gives the next random number of [0, 1)."""
Deviations = dict[str, dict[int, Value]]
"""Stream -> number of a decision in it -> its value. Boring values are left out."""

FORMAT: Final = 1


class Stream:
    """Decisions of one name, numbered from 0. Make it with ``Tape.stream``."""

    __slots__ = ("_fresh", "_kept", "_random", "_replays", "count", "name")

    def __init__(self, name: str, seed: str, kept: dict[int, Value], *, replays: bool) -> None:
        self.name, self._kept, self._replays = name, kept, replays
        self.count = 0
        self._random: Chance = _Unseeded(self, seed)
        self._fresh = True

    def draw(self, default: T, generator: Callable[[Chance], T]) -> T:
        """Draw the next decision: from ``generator`` when recording, the kept value or ``default`` when replaying."""
        number = self.count
        self.count = number + 1
        if self._replays:
            value: T = self._kept.get(number, default)
            return value
        value = generator(self._random)
        if value != default:
            self._kept[number] = value
        return value

    def chance(self, probability: float) -> bool:
        """Return True with this probability; the boring answer is False."""
        number = self.count
        self.count = number + 1
        if self._replays:
            return self._kept.get(number) is True
        if probability > 0.0 and self._random() < probability:
            self._kept[number] = True
            return True
        return False

    def seldom(self, probability: float, generator: Callable[[float, Chance], T]) -> T | None:
        """Draw a value of ``generator(number drawn, chance)`` with this probability, else the boring None.

        For frequent decisions with rare deviations: the number drawn is below ``probability`` and may choose the value,
        which is never None.
        """
        number = self.count
        self.count = number + 1
        if self._replays:
            return self._kept.get(number)
        if probability <= 0.0 or (drawn := self._random()) >= probability:
            return None
        value = self._kept[number] = generator(drawn, self._random)
        return value

    def between(self, low: int, high: int, default: int | None = None) -> int:
        """Draw a whole number of [low, high]; the boring one is ``low`` unless ``default`` is given."""
        boring = low if default is None else default
        number = self.count
        self.count = number + 1
        if self._replays:
            value = self._kept.get(number, boring)
            return value if type(value) is int and low <= value <= high else boring
        value = low + int(self._random() * (high - low + 1))
        if value != boring:
            self._kept[number] = value
        return value

    def pick(self, options: Sequence[T], default: T) -> T:
        """Draw one of ``options`` (values that JSON can hold), all equally likely; ``default`` if there are none."""
        number = self.count
        self.count = number + 1
        if self._replays:
            value: T = self._kept.get(number, default)
            return value if value in options else default
        value = options[int(self._random() * len(options))] if options else default
        if value != default:
            self._kept[number] = value
        return value

    def _seeded(self, seed: str) -> Chance:
        if self._fresh:
            self._fresh = False
            self._random = Random(f"{seed}/{self.name}").random
        return self._random


class _Unseeded:
    """Replaces a stream's chance until it is first needed: seeding costs more than a hundred draws."""

    __slots__ = ("_seed", "_stream")

    def __init__(self, stream: Stream, seed: str) -> None:
        self._stream, self._seed = stream, seed

    def __call__(self) -> float:
        return self._stream._seeded(self._seed)()


class Tape:
    """All decisions of one run. ``Tape(seed)`` records; ``Tape(seed, deviations)`` replays exactly those.

    The seed still matters in a replay: it feeds ``bits``, numbers that must be unique rather than interesting.
    """

    def __init__(self, seed: int, deviations: Mapping[str, Mapping[int, Value]] | None = None) -> None:
        self.seed = seed
        self.replays = deviations is not None
        self._kept: Deviations = {name: dict(values) for name, values in (deviations or {}).items()}
        self._streams: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        """Return the stream of this name. Keep it, since each call costs more than a draw."""
        stream = self._streams.get(name)
        if stream is None:
            kept = self._kept.setdefault(name, {})
            stream = self._streams[name] = Stream(name, str(self.seed), kept, replays=self.replays)
        return stream

    def listen(self, heard: Callable[[str, Value], None]) -> None:
        """Call ``heard`` with stream and value of each deviation as it is played. Must come before the replay."""
        self._kept = {name: _Heard(name, values, heard) for name, values in self._kept.items()}

    def draw(self, stream: str, default: T, generator: Callable[[Chance], T]) -> T:
        """Draw one decision of a stream that is used rarely."""
        return self.stream(stream).draw(default, generator)

    def bits(self, name: str) -> Random:
        """Return a source of numbers outside the tape (session numbers, incarnations), fixed by seed and name."""
        return Random(f"{self.seed}/bits/{name}")

    def rng(self, name: str, boring: float) -> TapeRandom:
        """Return a ``Random`` for the code under test: its ``random()`` is on the tape, its bits are not."""
        return TapeRandom(self.stream(name), self.bits(name), boring)

    @property
    def deviations(self) -> Deviations:
        """Return a copy of all deviations from the boring run. Streams without any are left out."""
        return {name: dict(values) for name, values in sorted(self._kept.items()) if values}


class _Heard(dict[int, Value]):
    """The deviations of one stream, which reports each one that is read."""

    def __init__(self, name: str, values: Mapping[int, Value], heard: Callable[[str, Value], None]) -> None:
        super().__init__(values)
        self._name, self._heard = name, heard

    def get(self, number: int, default: Value = None) -> Value:
        if number not in self:
            return default
        self._heard(self._name, self[number])
        return self[number]


class TapeRandom(Random):
    """The ``rng`` of a replica: ``uniform`` and the like use ``random()``, ``randrange`` uses bits outside the tape.

    The boring ``random()`` is one constant for each node, so that without deviations timeouts differ between nodes.
    """

    def __init__(self, stream: Stream, bits: Random, boring: float) -> None:
        super().__init__(0)
        self._stream, self._bits, self._boring = stream, bits, boring

    def random(self) -> float:
        return self._stream.draw(self._boring, _plain)

    def getrandbits(self, k: int, /) -> int:
        return self._bits.getrandbits(k)


def _plain(chance: Chance) -> float:
    return chance()


def count(deviations: Mapping[str, Mapping[int, Value]]) -> int:
    """Return the number of draws that deviate from the boring value."""
    return sum(map(len, deviations.values()))


def save(path: Path, seed: int, deviations: Mapping[str, Mapping[int, Value]], **notes: Value) -> None:
    """Write a tape file: JSON, with ``notes`` (profile, predicate, version) for the reader."""
    kept = {name: {str(number): value for number, value in values.items()} for name, values in deviations.items()}
    text = json.dumps({"format": FORMAT, "seed": seed, **notes, "deviations": kept}, indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def load(path: Path) -> tuple[Tape, dict[str, Value]]:
    """Read a file, and return a replaying tape and its notes. Raises ``UsageError`` for anything but a tape file."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        kept = whole.pop("deviations")
        if whole.pop("format") != FORMAT:
            raise ValueError(f"format {FORMAT} is read here")
        seed = whole.pop("seed")
        if type(seed) is not int:
            raise ValueError("the seed must be a whole number")
        deviations = {str(name): {int(number): value for number, value in values.items()}
                      for name, values in kept.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not a tape: {error}") from error
    return Tape(seed, deviations), whole
