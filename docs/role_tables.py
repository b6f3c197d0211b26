"""Draws the role of a broker, as ``broker.replicas.machine`` has it, into ``docs/reference/replication.md``.

    python docs/role_tables.py            draw it anew
    python docs/role_tables.py --check    exit code 1 if it is not as the code says

A part stands between ``<!-- drawn: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parent / "reference" / "replication.md"
sys.path.insert(0, str(PAGE.parents[2]))

from broker.replicas import machine as role  # noqa: E402

_PART: Final = re.compile(r"(<!-- drawn: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


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
        first = f"`{state.name}` | {state.value} | {role.WRITES[state].value}"
        for event, (after, actions) in row.items():
            yield f"| {first} | `{event.name}` | `{after.name}` | {'; '.join(action.value for action in actions)} |"
            first = "| |"
        if not row:
            yield f"| {first} | | | |"


def role_retreats() -> Iterator[str]:
    """How mastership is given up, beside the state."""
    yield "| beside the state | what it is | event | becomes | what is done |"
    yield "|---|---|---|---|---|"
    for retreat, row in role.RETREATS.items():
        first = f"`{retreat.name}` | {retreat.value}"
        for event, (after, actions) in row.items():
            yield f"| {first} | `{event.name}` | `{after.name}` | {'; '.join(action.value for action in actions)} |"
            first = "|"
        if not row:
            yield f"| {first} | | | |"


def role_events() -> Iterator[str]:
    """Who says what."""
    yield "| event | what happened |"
    yield "|---|---|"
    for event in role.Event:
        yield f"| `{event.name}` | {event.value} |"


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "role-diagram": role_diagram, "role-states": role_states, "role-retreats": role_retreats,
    "role-events": role_events}


def drawn(page: str) -> str:
    """The page with its parts as the code says."""
    return _PART.sub(lambda found: found[1] + "\n".join(PARTS[found[2]]()) + "\n" + found[3], page)


def main() -> int:
    """The command; returns its exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = drawn(before)
    if after != before and not options.check:
        PAGE.write_text(after, encoding="utf-8")
    return int(options.check and after != before)


if __name__ == "__main__":
    sys.exit(main())
