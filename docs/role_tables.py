"""The role of a broker as ``broker.replicas.machine`` has it: a diagram and tables, for ``docs/generate.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final

from broker.replicas import machine as role


def role_diagram() -> Iterator[str]:
    """States of a broker and what leads from one to another; what stays where it is has a row of the table."""
    together = {(event, after) for event, (after, _) in role.MOVES[role.State.VACANT].items()
                if all(role.MOVES[state].get(event, (None,))[0] is after for state in role.REGISTERED)}
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"  [*] --> {role.State.NAMELESS.name}"
    yield "  state REGISTERED {"
    edges: dict[tuple[str, str], list[str]] = {}
    for state, row in role.MOVES.items():
        for event, (next_state, _) in row.items():
            if next_state is not state and (event, next_state) not in together:
                edges.setdefault((state.name, next_state.name), []).append(event.name)
    inside = {state.name for state in role.REGISTERED}
    for (before, after), events in edges.items():
        if {before, after} <= inside:
            yield f"    {before} --> {after}: {', '.join(events)}"
    yield "  }"
    for (before, after), events in edges.items():
        if not {before, after} <= inside:
            yield f"  {before} --> {after}: {', '.join(events)}"
    for event, next_state in sorted(together, key=lambda each: each[0].name):
        yield f"  REGISTERED --> {next_state.name}: {event.name}"
    yield f"  {role.State.STOPPED.name} --> [*]"
    yield "```"


def role_states() -> Iterator[str]:
    """What each state means, and what each event makes of it."""
    yield "| state | what it is | writes are open | event | becomes | what is done |"
    yield "|---|---|---|---|---|---|"
    for state, row in role.MOVES.items():
        yield from _rows(f"`{state.name}` | {state.value} | {role.WRITES[state].value}", "| |", row)


def _rows(first: str, rest: str, row: Mapping[role.Event, tuple[Enum, tuple[role.Action, ...]]]) -> Iterator[str]:
    """One for each event; the first one begins with what they all are of."""
    for event, (after, actions) in row.items():
        yield f"| {first} | `{event.name}` | `{after.name}` | {'; '.join(action.value for action in actions)} |"
        first = rest
    if not row:
        yield f"| {first} | | | |"


def role_retreats() -> Iterator[str]:
    """How mastership is given up, beside the state."""
    yield "| beside the state | what it is | event | becomes | what is done |"
    yield "|---|---|---|---|---|"
    for retreat, row in role.RETREATS.items():
        yield from _rows(f"`{retreat.name}` | {retreat.value}", "|", row)


def role_events() -> Iterator[str]:
    """Who says what."""
    yield "| event | what happened |"
    yield "|---|---|"
    for event in role.Event:
        yield f"| `{event.name}` | {event.value} |"


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "role-diagram": role_diagram, "role-states": role_states, "role-retreats": role_retreats,
    "role-events": role_events}
