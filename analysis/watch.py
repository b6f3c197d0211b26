"""Watches running groups, and decides when a monitor alerts. Rows and times in, alerts out; no Spark, no clock.

Replicas are compared frame by frame as their frames come in; old frames are forgotten once every node has them.
A group is without a leader from the first sign of a campaign (a vote on disk, or a round in a trace) until a leadership
of that term or a later one is in a log, or entries go on being written. In an idle group, one node that is cut off and
campaigns alone looks the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

FRAMES_KEPT: Final = 1_000
"""Frames of one node and group that are kept although all known nodes have them: another node may come."""
FRAMES_MAX: Final = 20_000
"""Frames of one node and group that wait for the others; beyond, the oldest go uncompared."""

GroupKey = tuple[str | None, str]


@attrs.frozen
class Alert:
    """One row of alarm. Times are the monitor's, ms since 1970 UTC; ``since_ms`` is when it saw the trouble begin."""

    kind: str
    """``log_mismatch``, ``stale_suffix``, ``damage``, ``no_leader`` or, when it is over, ``leader_again``."""
    at_ms: int
    since_ms: int
    cluster: str | None
    group: str | None
    node: str | None
    index: int | None
    file: str | None
    offset: int | None
    detail: str


@attrs.frozen
class _Held:
    mark: int
    term: int
    file: str | None
    offset: int | None


@attrs.frozen
class _Campaign:
    """While nobody is known to lead."""

    term: int
    since_ms: int
    node: str
    probes: bool
    """It is told again with every round, so it may be taken for over when the old leader writes."""


@attrs.define(eq=False)
class _Group:
    held: dict[str, dict[int, _Held]] = attrs.field(factory=dict)
    """Frames by first index, in order, by node."""
    suspects: dict[tuple[str, int], int] = attrs.field(factory=dict)
    """(node, index) of a frame of a lower term than another's there, and since when."""
    told: set[tuple[str, int, int]] = attrs.field(factory=set)
    led_term: int = 0
    campaign: _Campaign | None = None
    alarmed: bool = False


@attrs.define(eq=False)
class Watch:
    """State of the watch over all groups. ``no_leader_ms``: how long a group may be without a leader.

    ``grace_ms``: how long a replica may keep entries of a deposed leader that others have replaced; it is legal until a
    leader reaches the replica.
    """

    no_leader_ms: int = 10_000
    grace_ms: int = 60_000
    _groups: dict[GroupKey, _Group] = attrs.field(factory=dict)
    _names: dict[tuple[str | None, int], GroupKey] = attrs.field(factory=dict)
    """Groups by cluster and number: traces know no names."""

    def frames(self, rows: Iterable[Mapping[str, Any]], now_ms: int) -> Iterator[Alert]:
        """Rows of ``format=frames``, of each node in the order of writing."""
        seen = set()
        for row in rows:
            if row["damage"] is not None:
                yield Alert("damage", now_ms, now_ms, row["cluster"], row["group"], row["node"], row["index"],
                            row["file"], row["offset"], f"{row['damage']}: {row['reason']}")
            elif row["mark"] is not None:
                seen.add(self._key(row))
                yield from self._frame(row, now_ms)
        for key in seen:
            _forget(self._groups[key])

    def _key(self, row: Mapping[str, Any]) -> GroupKey:
        key: GroupKey = (row["cluster"], row["group"])
        if row["group_id"] is not None:
            self._names[row["cluster"], row["group_id"]] = key
        return key

    def _frame(self, row: Mapping[str, Any], now_ms: int) -> Iterator[Alert]:
        key = self._key(row)
        group = self._groups.setdefault(key, _Group())
        node, index, term = row["node"], row["index"], row["term"]
        yield from self._led(key, group, term, now_ms)
        mine = group.held.setdefault(node, {})
        while mine and next(reversed(mine)) >= index:  # the node cut its log before it wrote this
            group.suspects.pop((node, mine.popitem()[0]), None)
        held = mine[index] = _Held(row["mark"], term, row["file"], row["offset"])
        for other, theirs in group.held.items():
            found = theirs.get(index)
            if other == node or found is None or found.mark == held.mark:
                continue
            if found.term == term:
                if (node, index, held.mark) not in group.told:
                    group.told |= {(node, index, held.mark), (other, index, found.mark)}
                    yield self._alert("log_mismatch", key, now_ms, now_ms, node, index, held,
                                      f"{node} and {other} hold different frames at entry {index} of term {term}")
            else:
                group.suspects.setdefault((node if term < found.term else other, index), now_ms)

    def events(self, rows: Iterable[Mapping[str, Any]], now_ms: int) -> Iterator[Alert]:
        """Rows of ``format=events``: a vote begins a campaign, a no-op ends it."""
        for row in rows:
            if row["damage"] is not None or row["group"] is None:
                continue
            key = self._key(row)
            group = self._groups.setdefault(key, _Group())
            if row["kind"] == "noop":
                yield from self._led(key, group, row["term"], now_ms)
            elif row["kind"] == "hard_state" and row["term"] > group.led_term:
                _campaigns(group, row["term"], row["node"], now_ms, probes=False)

    def trace(self, rows: Iterable[Mapping[str, Any]], now_ms: int) -> Iterator[Alert]:
        """Events of traces; ``group_id`` is the number of their group, ``cluster`` None where nobody knows."""
        for row in rows:
            cluster, number = row["cluster"], row["group_id"]
            key = self._names.get((cluster, number), (cluster, str(number)))
            group = self._groups.setdefault(key, _Group())
            if row["event"] == "BecameLeader":
                yield from self._led(key, group, row["term"], now_ms)
            elif row["event"] == "RoundStarted" and row["asked_term"] > group.led_term:
                _campaigns(group, row["asked_term"], row["node"], now_ms, probes=True)
            elif row["event"] == "BecameFollower" and row["leader"] is not None:
                if group.campaign is not None and group.campaign.node == row["node"]:
                    yield from self._over(key, group, now_ms, f"{row['node']} follows {row['leader']} again")

    def tick(self, now_ms: int) -> Iterator[Alert]:
        """Time has passed: what lasts too long."""
        for key, group in self._groups.items():
            begun = group.campaign
            if begun is not None and not group.alarmed and now_ms - begun.since_ms > self.no_leader_ms:
                group.alarmed = True
                yield Alert("no_leader", now_ms, begun.since_ms, *key, begun.node, None, None, None,
                            f"{begun.node} campaigns for term {begun.term}; no leader for {now_ms - begun.since_ms} ms")
            for (node, index), since in list(group.suspects.items()):
                held = group.held.get(node, {}).get(index)
                if held is None:
                    del group.suspects[node, index]
                elif now_ms - since > self.grace_ms and (node, index, held.mark) not in group.told:
                    group.told.add((node, index, held.mark))
                    yield self._alert("stale_suffix", key, now_ms, since, node, index, held,
                                      f"{node} has entries of term {held.term} from {index} on; others replaced them")

    def _led(self, key: GroupKey, group: _Group, term: int, now_ms: int) -> Iterator[Alert]:
        """Somebody led ``term``, or writes in it."""
        if term >= group.led_term:
            group.led_term = term
            begun = group.campaign
            if begun is not None and term >= begun.term - begun.probes:
                yield from self._over(key, group, now_ms, f"term {term} has a leader")

    def _over(self, key: GroupKey, group: _Group, now_ms: int, why: str) -> Iterator[Alert]:
        assert group.campaign is not None
        since, alarmed = group.campaign.since_ms, group.alarmed
        group.campaign, group.alarmed = None, False
        if alarmed:
            yield Alert(
                "leader_again", now_ms, since, *key, None, None, None, None, f"{why}, after {now_ms - since} ms")

    def _alert(
        self, kind: str, key: GroupKey, now_ms: int, since_ms: int, node: str, index: int, held: _Held, detail: str,
    ) -> Alert:
        return Alert(kind, now_ms, since_ms, *key, node, index, held.file, held.offset, detail)


def _campaigns(group: _Group, term: int, node: str, now_ms: int, *, probes: bool) -> None:
    since = group.campaign.since_ms if group.campaign is not None else now_ms
    group.campaign = _Campaign(term, since, node, probes)


def _forget(group: _Group) -> None:
    """Forget frames that every known node has got beyond, and frames beyond the limit."""
    behind = min(next(reversed(frames), 0) for frames in group.held.values())
    for node, frames in group.held.items():
        while len(frames) > FRAMES_KEPT and ((first := next(iter(frames))) < behind or len(frames) > FRAMES_MAX):
            group.suspects.pop((node, first), None)
            del frames[first]
