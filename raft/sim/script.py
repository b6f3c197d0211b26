"""Describes a run to people, a line with its time for each act of clients, leaders, nemesis and network.

It is made from a replay, whose tape says which decisions deviate from a boring run. Knows streams' names and values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from raft.config import MS
from raft.sim.campaign import Scene
from raft.sim.swarm import Plan
from raft.sim.tape import Tape, Value

LINES_MAX: Final = 80
SILENT: Final = ("client", "swarm", "snapshots", "bounces", "lapses", "narrows")
"""Streams whose decisions get no line: clients report their own acts, and conditions are one line."""
OF_LENGTH: Final = {
    "crash": "power cut at {who}, back after {ms} ms", "wipe": "{who} loses its disk, back after {ms} ms",
    "pause": "{who} stands still for {ms} ms", "isolate": "{who} is cut off for {ms} ms",
    "full": "{who}'s disk is full for {ms} ms", "fail": "{who}'s next sync fails; restarted after {ms} ms",
    "stall": "{who}'s disk stands still for {ms} ms", "hang": "{who}'s disk hangs for {ms} ms while leaders change",
    "rot": "the end of {who}'s disk rots, back after {ms} ms",
    "copy": "{who}'s disk is copied, or an older copy put back",
    "damage": "{who}'s disk is damaged at rest, replaced after {ms} ms",
}


class RunScript:
    """Collects the lines of a run's script."""

    def __init__(self) -> None:
        self.scene: Scene | None = None
        self._lines: list[tuple[int, str]] = []

    def listen(self, tape: Tape) -> None:
        """Listen to a tape that is about to be replayed."""
        tape.listen(self._heard)

    def say(self, text: str) -> None:
        """Add a line at the current virtual time."""
        self._lines.append((self.scene.cluster.world.now if self.scene else 0, text))

    def _heard(self, stream: str, value: Value) -> None:
        if stream == "nemesis" and self.scene is not None:
            self.say(f"nemesis: {fault_words(value, self.scene.cluster.leader)}")
        elif stream not in SILENT:
            self.say(stream_words(stream, value))

    def lines(self) -> list[str]:
        """Return the lines, conditions first. The middle of a long script is left out."""
        out = [f"{at / MS:10.3f} ms  {text}" for at, text in self._lines]
        if len(out) > LINES_MAX:
            left = len(out) - LINES_MAX
            half = LINES_MAX // 2
            out = [*out[:half], f"              … {left} lines …", *out[-half:]]
        return [f"conditions: {conditions(self.scene.plan)}" if self.scene else "conditions: none", *out]


def conditions(plan: Plan) -> str:
    """Return words for the conditions of a seed that differ from the usual plan."""
    usual = Plan()
    told = [f"{plan.size} nodes"]
    for field in attrs.fields(Plan):
        value = getattr(plan, field.name)
        if field.name in ("size", "duration_ms", "op_ns", "faults", "links", "nemesis_chance", "read_share"):
            continue
        if value != getattr(usual, field.name):
            told.append(f"{field.name}={getattr(value, 'value', value)}")
    told += [f"{field.name}={getattr(plan.links, field.name)}" for field in attrs.fields(type(plan.links))
             if getattr(plan.links, field.name) != getattr(usual.links, field.name)]
    return ", ".join(told)


def fault_words(fault: Value, leader: str | None) -> str:
    """Describe one act of the nemesis."""
    if not isinstance(fault, list) or len(fault) < 2:
        return str(fault)
    what, who, *rest = fault
    who = f"{leader or 'nobody'}, the leader," if who == "leader" else who
    if what in OF_LENGTH and rest:
        return OF_LENGTH[what].format(who=who, ms=rest[0])
    words: dict[str, Callable[[], str]] = {
        "partition": lambda: f"{', '.join(rest[1]) or 'no node'} cut off from the others for {rest[0]} ms",
        "cut": lambda: f"nothing passes from {who} to {rest[1]} for {rest[0]} ms",
        "hold": lambda: f"messages from {who} to {rest[1]} wait for {rest[0]} ms",
        "rate": lambda: f"{who}'s clock runs at {rest[1] / 1e6:.3f} for {rest[0]} ms",
        "drift": lambda: f"{who}'s clock runs at {rest[1] / 1e6:.3f} for {rest[0]} ms",
        "step": lambda: f"{who}'s clock jumps ahead by {rest[0]} ms",
        "transfer": lambda: f"leadership to {rest[0] or 'the best placed voter'}",
        "reconfigure": lambda: f"voters {', '.join(rest[0])}, learners {', '.join(rest[1]) or 'none'}",
        "snapshot": lambda: f"{who} takes a snapshot",
        "bounce": lambda: f"{who} is killed and back at once, twice",
    }
    try:
        return words[what]()
    except (KeyError, IndexError, TypeError):
        return " ".join(map(str, fault))


def stream_words(stream: str, value: Value) -> str:
    """Describe one decision of any other stream."""
    kind, _, name = stream.partition("/")
    if kind == "link":
        way = name.partition("/")[2].replace(">", " → ")
        what = value[0] if isinstance(value, list) and value else value
        late = f", {value[1] / MS:.3f} ms" if isinstance(value, list) and len(value) > 1 and value[1] else ""
        return f"message {way}: {what}{late}"
    if kind == "timeouts":
        return f"election timeout of {name}: {value:.2f} of its range"
    if kind == "disk":
        return f"disk of {name.replace('/', ', ')}: {value / MS if isinstance(value, int) and value > MS else value}"
    return f"{stream}: {value}"
