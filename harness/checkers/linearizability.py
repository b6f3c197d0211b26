"""Checks linearizability: is there one order of all operations, each within its interval, that a model explains?

The search is Wing and Gong's with Lowe's memo (Testing for linearizability, 2017), just in time and depth first: an
operation is linearized when the next one ends. Three reductions, each checked against brute force in the tests:

- Reads that are possible now are linearized at once, as they change nothing.
- Operations of unknown outcome need never happen. Of two ways to one state, the one that used fewer of them suffices,
  and of equal ones the first begun is as good as any.
- A model names unknown operations whose effect no answer shows; they are left out.

Keys are searched in turns with growing budgets: one hard key does not hide another that is broken. Knows no file.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from harness.checkers.models import ILLEGAL, UNKNOWN, Call, Model, State, UnknownOperation, frozen, is_txn
from harness.checkers.verdict import Valid, Verdict
from harness.histories.events import APART, INFO, OK, Event, Operation, operations, short

STEPS_FIRST: Final = 10_000
"""Steps of a key's first turn; each further turn has GROWTH times as many."""
GROWTH: Final = 4
STEPS_TURN: Final = 1_000_000
"""Most steps of one turn: memory is checked between turns."""
ENTRY_BYTES: Final = 200
"""Largest size of a remembered way."""
MEMORY_BYTES: Final = 2 << 30
STEPS_MAX: Final = 200_000_000
STATES_SHOWN: Final = 5
MakeModel = Callable[[], Model]


@attrs.frozen
class Limits:
    """Limits of a check, over all keys. Beyond them the verdict is unknown."""

    steps: int = STEPS_MAX
    memory_bytes: int = MEMORY_BYTES


def check(
    events: Iterable[Event], make: MakeModel, *, limits: Limits | None = None, name: str = "linearizable",
    progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """The verdict on a history whose keys are one object each. Raises ``UnknownOperation`` for what the model lacks.

    ``progress`` is told (keys decided, keys in all) after each turn.
    """
    limits = limits or Limits()
    by_key = partitioned(operations(event for event in events if event.process not in APART))
    searches = [Search(of_key, make()) for of_key in by_key.values()]
    asked = {"operations": sum(len(each.returns) for each in searches),
             "answers": sum(each.answers() for each in searches), "keys": len(searches)}
    if not asked["operations"]:
        return Verdict(name, Valid.UNKNOWN, "no operation was ever ok: nothing was asked", asked)
    undecided, given_up, budget, steps, held = searches, 0, STEPS_FIRST, 0, 0
    while undecided:
        for search in undecided:
            steps_before, held_before = search.steps, search.held()
            found = search.run(budget)
            steps += search.steps - steps_before
            held += search.held() - held_before
            if found is False:
                return _failed(search, searches, make, name, asked | {"steps": steps})
            if held > limits.memory_bytes:
                largest = max(undecided, key=Search.held)
                held -= largest.held()
                largest.forget()
                given_up += 1
            if steps > limits.steps:
                open_keys = sum(not each.decided for each in searches)
                why = f"{limits.steps:,} steps were not enough: {open_keys} of {len(searches)} keys are not decided"
                return Verdict(name, Valid.UNKNOWN, why, asked | {"steps": steps})
        undecided = [each for each in undecided if not each.decided and not each.forgotten]
        budget = min(budget * GROWTH, STEPS_TURN)
        if progress is not None:
            progress(len(searches) - len(undecided), len(searches))
    asked["steps"] = steps
    if given_up:
        return Verdict(name, Valid.UNKNOWN, f"{given_up} of {len(searches)} keys need more memory than "
                                            f"{limits.memory_bytes:,} bytes; the others are linearizable", asked)
    if not asked["answers"]:
        return Verdict(name, Valid.UNKNOWN, "no answer ever told a value, as that of a read does: nothing was asked",
                       asked)
    return Verdict(name, Valid.TRUE, "an order of all operations explains every answer", asked)


def partitioned(found: Iterable[Operation]) -> dict[State, list[Operation]]:
    """Operations by key. Raises ``UnknownOperation`` for a transaction over several keys."""
    by_key: dict[State, list[Operation]] = {}
    for operation in found:
        by_key.setdefault(_key(operation.invoked), []).append(operation)
    return by_key


def _key(event: Event) -> State:
    if event.f != "txn":
        return frozen(event.key)
    if event.key is None and not is_txn(event.value):
        raise UnknownOperation(f"line {event.line}: a transaction is a list of [f, key, value], not "
                               f"{short(event.value)}")
    keys = {frozen(part[1]) for part in event.value} if is_txn(event.value) else set()
    if event.key is not None:
        keys.add(frozen(event.key))
    if len(keys) != 1:
        raise UnknownOperation(f"line {event.line}: a transaction over {len(keys)} keys; transactions of one key are "
                               "judged here, of several ask a checker of cycles, such as Elle")
    return keys.pop()


def _failed(
    search: Search, searches: Sequence[Search], make: MakeModel, name: str, asked: Mapping[str, int],
) -> Verdict:
    prefix, left = _prefix(search, make), STEPS_TURN
    for other in searches:
        if other is search or other.decided or left <= 0:
            continue
        before = Search(_beginning(other.all, prefix - 2), make())  # a shorter beginning that fails ends sooner
        if before.run(left) is False:
            search, prefix = before, _prefix(before, make)
        left -= before.steps
    operation = search.failing()
    key = "" if len(searches) == 1 else f" of key {short(operation.invoked.key)}"
    return Verdict(
        name, Valid.FALSE, f"no order of the operations{key} explains {operation.words()}", asked, operation, prefix,
        states=search.states_before())


def _prefix(search: Search, make: MakeModel) -> int:
    return shortest(search.all, search.failing(), make, search.steps * 4 + STEPS_TURN)


def shortest(of_key: Sequence[Operation], failing: Operation, make: MakeModel, steps: int) -> int:
    """Length of the shortest prefix of the history that no order explains, in events.

    The search used the whole history: a prefix up to the end of the failing operation may be linearizable, if a later
    answer rules it out. All prefixes of a linearizable history are linearizable, so bisection finds the shortest. If
    ``steps`` do not decide a prefix, the answer is a longer one that fails.
    """
    ends = sorted(each.ended.index for each in of_key if each.ended is not None)
    assert failing.ended is not None, "only what ended can fail"
    low, high = ends.index(failing.ended.index), len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        search = Search(_beginning(of_key, ends[middle]), make())
        found = search.run(steps)
        if found is None:
            return ends[high] + 1
        low, high = (low, middle) if found is False else (middle + 1, high)
    return ends[low] + 1


def _beginning(of_key: Iterable[Operation], last: int) -> list[Operation]:
    """The operations as known after the event ``last``."""
    return [each if each.ended is None or each.ended.index <= last else Operation(each.invoked, None)
            for each in of_key if each.invoked.index <= last]


Step = tuple[int, int]
"""(bit among the operations that are open at the same time, kind) of an operation."""


@attrs.define
class _Unknown:
    """Equal operations of unknown outcome: their bits, and the number of the end after which each began."""

    kind: int
    bits: list[int] = attrs.field(factory=list)
    since: list[int] = attrs.field(factory=list)


class Search:
    """A resumable search over the operations of one key. ``run`` returns True, False, or None: not yet decided."""

    def __init__(self, of_key: Sequence[Operation], model: Model) -> None:
        self.all = of_key
        self.steps = 0
        self.decided = self.forgotten = False
        self._model = model
        self._kinds: dict[State, int] = {}
        self._asked: list[Call] = []
        known = [each for each in of_key if each.ended is not None and each.ended.type == OK]
        self.returns = sorted(known, key=_end)
        """Operations that were ``ok``, in the order of their ends."""
        self._ends = [_end(each) for each in self.returns]
        self._bits: list[int] = []
        self._writes: list[tuple[Step, ...]] = []
        self._reads: list[tuple[Step, ...]] = []
        self._width = 0
        self._lay_out()
        assert len(self._bits) == len(self._reads) == len(self._writes) == len(self.returns)
        self._unknown = self._of_unknown()
        self._states: list[State] = [model.begin()]
        self._state_ids: dict[State, int] = {self._states[0]: 0}
        self._moves: dict[int, int] = {}
        self._memo: list[dict[int, Any]] = [{} for _ in self.returns]
        self._ways: list[list[tuple[int, int, int]]] = [[] for _ in range(len(self.returns) + 1)]
        """Number of the next end -> ways to try, as (state, done, spent); the last one first."""
        self._spending: dict[int, deque[tuple[int, int, int]]] = {}
        """Ways to try that use an unknown operation: only when no other way is left at that end, the cheapest first."""
        self._ways[0].append((0, 0, 0))
        self._top = 0
        self._entries = self._deepest = 0
        self._before: dict[int, None] = {}

    def answers(self) -> int:
        """Return how many answers could be wrong; all of them if the model does not say."""
        tells = getattr(self._model, "tells", None)
        return len(self.returns) if tells is None else sum(map(tells, self._answered()))

    def _answered(self) -> Iterator[Call]:
        return (Call(each.invoked.f, each.invoked.value, each.ended.value)
                for each in self.returns if each.ended is not None)

    def _kind(self, asked: Call) -> int:
        name = (asked.f, frozen(asked.value), asked.result if asked.result is UNKNOWN else (frozen(asked.result),))
        found = self._kinds.setdefault(name, len(self._asked))
        if found == len(self._asked):
            self._asked.append(asked)
        return found

    def _lay_out(self) -> None:
        """List operations that may be linearized before each end; a bit is reused after its operation ended."""
        begun = sorted(self.returns, key=lambda each: each.invoked.index)
        numbers = {each.invoked.index: number for number, each in enumerate(self.returns)}
        reads = [False] * len(begun)
        steps: list[Step] = [(0, 0)] * len(begun)
        free: list[int] = []
        open_now: dict[int, None] = {}
        coming = 0
        for number in range(len(self.returns)):
            while coming < len(begun) and begun[coming].invoked.index < self._ends[number]:
                operation = begun[coming]
                coming += 1
                assert operation.ended is not None
                asked = Call(operation.invoked.f, operation.invoked.value, operation.ended.value)
                place = heapq.heappop(free) if free else self._width
                self._width = max(self._width, place + 1)
                mine = numbers[operation.invoked.index]
                steps[mine], reads[mine] = (1 << place, self._kind(asked)), self._model.reads(asked)
                open_now[mine] = None
            self._bits.append(steps[number][0])
            self._reads.append(tuple(steps[each] for each in open_now if reads[each]))
            # the search takes the last one first: the operation that ends
            others = [steps[each] for each in open_now if not reads[each] and each != number]
            self._writes.append((*others, steps[number]) if not reads[number] else tuple(others))
            del open_now[number]
            heapq.heappush(free, steps[number][0].bit_length() - 1)

    def _of_unknown(self) -> list[_Unknown]:
        lost = [each for each in self.all if each.ended is None or each.ended.type == INFO]
        asked = [Call(each.invoked.f, each.invoked.value, UNKNOWN) for each in lost]
        idle = getattr(self._model, "idle", None)
        out = set(idle(asked, [*self._answered()]) if idle else ())
        found: dict[int, _Unknown] = {}
        ends, at = self._ends, 0
        number = 0
        for place, (operation, what) in enumerate(zip(lost, asked, strict=True)):
            if place in out or self._model.reads(what):
                continue
            while at < len(ends) and ends[at] < operation.invoked.index:
                at += 1
            kind = self._kind(what)
            alike = found.setdefault(kind, _Unknown(kind))
            alike.bits.append(1 << number)
            alike.since.append(at)
            number += 1
        return list(found.values())

    def _move(self, state: int, kind: int) -> int:
        """Number of the state after an operation; -1 if it is not possible. Callers remember it."""
        after = self._model.step(self._states[state], self._asked[kind])
        if after is ILLEGAL:
            return -1
        found = self._state_ids.setdefault(after, len(self._states))
        if found == len(self._states):
            self._states.append(after)
        return found

    def run(self, steps: int) -> bool | None:
        """Go on for so many steps: True: an order was found; False: there is none; None: not decided."""
        if self.forgotten:
            return None
        bits, reads, writes, memo, ways = self._bits, self._reads, self._writes, self._memo, self._ways
        moves, width, last = self._moves, self._width, len(self.returns)
        kinds = len(self._asked) + 1
        left = steps
        while self._seek():
            if left <= 0:
                self.steps += steps - left
                return None
            left -= 1
            number = self._top
            state, done, spent = ways[number].pop() if ways[number] else self._spending[number].popleft()
            while True:  # reads that fit the state cost nothing: take them at once, and pass ends already taken
                if number == last:
                    self.steps += steps - left
                    self.forget(decided=True)
                    return True
                for bit, kind in reads[number]:
                    if not done & bit:
                        after = moves.get(state * kinds + kind)
                        if after is None:
                            after = moves[state * kinds + kind] = self._move(state, kind)
                        if after == state:
                            done |= bit
                if not done & bits[number]:
                    break
                done ^= bits[number]
                number += 1
            if number > self._deepest:
                self._deepest = number
                self._before.clear()
            if number == self._deepest:
                self._before[state] = None
            if not _new(memo[number], state << width | done, spent):
                continue
            self._top = number
            self._entries += 1
            if self._unknown:
                self._push_unknown(number, state, done, spent, kinds)
            for bit, kind in writes[number]:
                if not done & bit:
                    after = moves.get(state * kinds + kind)
                    if after is None:
                        after = moves[state * kinds + kind] = self._move(state, kind)
                    if after >= 0:
                        ways[number].append((after, done | bit, spent))
        self.steps += steps - left
        return False

    def _seek(self) -> bool:
        """Go back to the last end at which a way is left to try; False if none is."""
        while not self._ways[self._top] and not self._spending.get(self._top):
            if not self._top:
                return False
            self._top -= 1
        return True

    def _push_unknown(self, number: int, state: int, done: int, spent: int, kinds: int) -> None:
        moves = self._moves
        for alike in self._unknown:
            for bit, since in zip(alike.bits, alike.since, strict=True):
                if since > number:
                    break
                if spent & bit:
                    continue
                after = moves.get(state * kinds + alike.kind)
                if after is None:
                    after = moves[state * kinds + alike.kind] = self._move(state, alike.kind)
                if after >= 0 and after != state:  # an unknown operation without effect need not happen
                    self._spending.setdefault(number, deque()).append((after, done, spent | bit))
                break

    def forget(self, *, decided: bool = False) -> None:
        """Free the memory. An undecided search can give no answer afterwards."""
        self.decided, self.forgotten = decided, not decided
        self._memo, self._ways, self._spending, self._moves, self._entries = [], [[]], {}, {}, 0
        self._top = 0

    def held(self) -> int:
        """Approximate memory of the search, in bytes."""
        return (self._entries + len(self._moves) + len(self._states)) * ENTRY_BYTES

    def failing(self) -> Operation:
        """The first operation whose end no order reaches. Call after ``run`` returned False."""
        assert not self.decided, "an order explains all of it"
        return self.returns[self._deepest]

    def states_before(self) -> list[str]:
        """Some states that were possible before the failing operation, in words."""
        words = getattr(self._model, "words", repr)
        return [words(self._states[each]) for each in list(self._before)[:STATES_SHOWN]]


def _end(operation: Operation) -> int:
    assert operation.ended is not None
    return operation.ended.index


def _new(memo: dict[int, Any], place: int, spent: int) -> bool:
    """Remember a way to ``place``; False if a known one used no more unknown operations. Several are a tuple."""
    before = memo.get(place)
    if before is None:
        memo[place] = spent
        return True
    if isinstance(before, int):
        if before & spent == before:
            return False
        memo[place] = spent if before & spent == spent else (before, spent)
        return True
    if any(each & spent == each for each in before):
        return False
    memo[place] = (*(each for each in before if each & spent != spent), spent)
    return True
