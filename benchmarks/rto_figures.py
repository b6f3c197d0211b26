"""Times without an acknowledgement around faults: what is read off acknowledgements, and the page of a recorded run.

Pure: numbers and text in, text out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from benchmarks.measure import quantile

FAULTS: Final[Mapping[str, str]] = {
    "kill": "the master's process is killed",
    "stop": "the master is stopped (SIGSTOP)",
    "host-killed": "the master's host dies: no connection closes",
    "host-silent": "the master's host is cut off from everybody",
    "from-controllers": "the master is cut off from the controllers",
    "from-slaves": "the master is cut off from its slaves",
    "from-clients": "the master is cut off from the clients",
    "slave-silent": "one slave is cut off from everybody",
    "disk-stalled": "the master's disk stalls: writes and syncs hang",
    "disk-full": "the master's disk is full",
    "both": "master and active controller are killed together",
}
CLIENTS: Final[Mapping[str, str]] = {"ours": "our client", "java": "unmodified Java producer"}
COLUMNS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "ours": (("before", "before, default"), ("ours, default", "default"),
             ("ours, guarded, default", "default, guardian"), ("ours, quick", "quick"),
             ("java, default", "Java 5.5.0")),
    "java": (("before", "before, default"), ("ours, default", "default"),
             ("ours, guarded, default", "default, guardian"), ("ours, quick", "quick"),
             ("ours, guarded, quick", "quick, guardian"), ("java, default", "Java 5.5.0")),
}
"""By client: names of sides with their headings."""
STEADY_S: Final = 2.0
"""A client is well again once it was acknowledged to for so long without a pause of half of it."""


def longest(acks: Sequence[float], since: float, until: float) -> float | None:
    """The longest time without an acknowledgement that ended between the two; None: the last one lasts still."""
    if not acks or acks[-1] < until - STEADY_S / 2:
        return None
    return max((later - sooner for sooner, later in pairwise(acks) if since < later <= until), default=0.0)


def steady(acks: Sequence[float], now: float) -> bool:
    """Whether a client is well again, or never was unwell."""
    lately = [at for at in acks if at > now - 2 * STEADY_S]
    before = [at for at in lately if at <= now - STEADY_S][-1:]
    rest = [at for at in lately if at > now - STEADY_S]
    return bool(before) and all(
        later - sooner <= STEADY_S / 2 for sooner, later in pairwise([*before, *rest, now]))


def merged(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], *,
           add: bool) -> list[Mapping[str, Any]]:
    """All rounds; what is measured anew takes the place of what was, unless it is to be added."""
    anew = set() if add else {(each["side"], each["fault"]) for each in now}
    return [*(each for each in before if (each["side"], each["fault"]) not in anew), *now]


def cell(rounds: Sequence[Mapping[str, Any]], side: str, fault: str, client: str) -> str:
    """The middle and the longest, in seconds, and of how many rounds; or why there is none."""
    found = [each for each in rounds if (each["side"], each["fault"]) == (side, fault)]
    told = [each for each in found if client in each.get("gaps_s", {})]
    if not told:
        return next((f"not measured: {each['not_run']}" for each in found if "not_run" in each), "–")
    ends = sorted(gap for each in told if (gap := each["gaps_s"][client]) is not None)
    held = min((each["held_s"] for each in told if each["gaps_s"][client] is None), default=0.0)
    unended = len(told) - len(ends)
    if not ends:
        return f"> {held:.0f} ({len(told)})"
    words = f"{quantile(ends, 0.5):.1f} / {ends[-1]:.1f}"
    if len(ends) >= 50:
        words = f"{quantile(ends, 0.5):.1f} / p99 {quantile(ends, 0.99):.1f} / {ends[-1]:.1f}"
    return f"{words} ({len(told)}{f'; {unended} > {held:.0f}' if unended else ''})"


def table(rounds: Sequence[Mapping[str, Any]], client: str, faults: Sequence[str] = tuple(FAULTS),
          columns: Sequence[str] = ()) -> Iterator[str]:
    """A row for each fault; columns that nobody measured are left out."""
    shown = [(side, title) for side, title in COLUMNS[client]
             if (not columns or side in columns) and any(each["side"] == side for each in rounds)]
    yield f"| fault | {' | '.join(title for _, title in shown)} | command |"
    yield "|---" * (len(shown) + 2) + "|"
    for fault in faults:
        cells = [cell(rounds, side, fault, client) for side, _ in shown]
        yield f"| {FAULTS[fault]} | {' | '.join(cells)} | `--faults {fault}` |"


def summary(rounds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What our client waits when somebody is silent and nobody died, for the first page."""
    columns = [(side, title) for side, title in COLUMNS["ours"]
               if "guarded" not in side and any(each["side"] == side for each in rounds)]
    yield f"| seconds without an acknowledgement | {' | '.join(title for _, title in columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for fault in ("stop", "host-silent", "slave-silent", "disk-stalled"):
        yield f"| {FAULTS[fault]} | {' | '.join(cell(rounds, side, fault, 'ours') for side, _ in columns)} |"


def page(results: Mapping[str, Any]) -> Iterator[str]:
    """Both tables of a recorded run."""
    days = sorted({each["day"] for each in results["rounds"] if "day" in each})
    loads = sorted(each["load"] for each in results["rounds"] if "load" in each)
    yield (f"{len(loads)} rounds from {days[0]} to {days[-1]} on {results['cpus']} cores for all processes; the load "
           f"average was {quantile(loads, 0.5):.1f} in the middle and {loads[-1]:.1f} at most.")
    for client, words in CLIENTS.items():
        yield ""
        yield f"## {words[0].upper()}{words[1:]}"
        yield ""
        yield from table(results["rounds"], client)
