"""Linearizability by trying every order of all operations: slow, and short enough to believe. No memo, no short cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.checkers.models import ILLEGAL, UNKNOWN, Call, Model, State
from harness.histories.events import FAIL, INFO, OK, Event, Operation, operations


def linearizable(events: Sequence[Event], make: Callable[[], Model]) -> bool:
    """Of one key."""
    found = [each for each in operations(events) if each.ended is None or each.ended.type != FAIL]
    model = make()
    return _explained(tuple(found), model.begin(), model)


def _explained(left: tuple[Operation, ...], state: State, model: Model) -> bool:
    """Whether some order of what is left explains it; operations of unknown outcome may stay left for ever."""
    if all(each.ended is None or each.ended.type == INFO for each in left):
        return True
    for place, each in enumerate(left):
        if any(other.ended is not None and other.ended.type == OK and other.ended.index < each.invoked.index
               for other in left):
            continue  # what had ended before this began stands before it
        told = each.ended.value if each.ended is not None and each.ended.type == OK else UNKNOWN
        after = model.step(state, Call(each.invoked.f, each.invoked.value, told))
        if after is not ILLEGAL and _explained(left[:place] + left[place + 1:], after, model):
            return True
    return False
