"""Every question answered by a few lines of Python over what ``tests.analysis.plain`` reads: nothing of ours but the
questions' names."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import attrs
import cbor2

from tests.analysis.plain import Node, Plain
from tests.analysis.scene import ALTER, APPLY, ELECT, REGISTER

Row = dict[str, Any]
KINDS = ("", "commands", "noop", "membership", "session")


@attrs.define
class World:
    """All directories and traces, the bucket's width and the two periods' bounds (from, split, until)."""

    nodes: Sequence[Node]
    events: Sequence[Row]
    bucket_ms: int
    bounds: tuple[int, int, int]

    def frames(self) -> Iterator[Plain]:
        return (frame for node in self.nodes for frame in node.frames)

    def groups(self) -> list[tuple[str, int]]:
        return sorted({(frame.cluster, frame.group) for frame in self.frames()})

    def once(self, cluster: str, group: int) -> list[Plain]:
        """Each frame of a group's log once."""
        found = {(frame.first, frame.mark): frame for frame in self.frames()
                 if (frame.cluster, frame.group) == (cluster, group) and not frame.truncated}
        return list(found.values())


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that so many are not above."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None


def median(values: Sequence[float]) -> float | None:
    """Between the two in the middle."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if values else None


def of(cluster: str, group: int, **fields: Any) -> Row:
    return {"cluster": cluster, "group": str(group), **fields}


# --- who led ---------------------------------------------------------------------------------------------------


def won(world: World, cluster: str, group: int) -> list[tuple[Plain, Row, int]]:
    """Leaderships in order: the frame that begins it, what it tells, and how many hold it."""
    found: dict[tuple[int, int, int], Plain] = {}
    held: Counter[tuple[int, int, int]] = Counter()
    for frame in world.frames():
        if (frame.cluster, frame.group, frame.kind) == (cluster, group, 2):
            key = frame.term, frame.first, frame.mark
            found[key] = frame
            held[key] += not frame.truncated
    return [(found[key], cbor2.loads(found[key].payloads[0]), held[key]) for key in sorted(found)]


def leadership(world: World) -> Iterator[Row]:
    """A row per no-op, and one per term that has frames and no no-op."""
    for cluster, group in world.groups():
        begun = {(frame.term, frame.first): (frame, told, number) for frame, told, number in won(world, cluster, group)}
        log = world.once(cluster, group)
        unsaid = {frame.term for frame in log} - {term for term, _ in begun}
        starts = [*((key, frame.wall_ms) for key, (frame, _, _) in begun.items()),
                  *(((term, 0), min(frame.wall_ms for frame in log if frame.term == term)) for term in unsaid)]
        starts.sort()
        end = max(frame.wall_ms for frame in world.frames() if (frame.cluster, frame.group) == (cluster, group))
        for ((term, first), _), until in zip(starts, [*(when for _, when in starts[1:]), end], strict=True):
            mine = [each for each in log if each.term == term]
            row = of(cluster, group, term=term, until_ms=until, entries=sum(len(each.payloads) for each in mine),
                     first_index=min((each.first for each in mine), default=None),
                     last_index=max((each.last for each in mine), default=None),
                     first_write_ms=min((each.wall_ms for each in mine), default=None),
                     last_write_ms=max((each.wall_ms for each in mine), default=None),
                     payload_bytes=sum(each.bytes for each in mine))
            if term in unsaid:
                leader = _traced_leader(world, cluster, group, term)
                yield {**row, "began_ms": None, "tenure_ms": None, "cause": None, "previous_leader": None,
                       "election_ms": None, "held_by": None, "leader": leader,
                       "leader_source": "trace" if leader else
                       "before the log" if _begins_some_log(world, cluster, group, term) else "not recorded"}
                continue
            frame, told, number = begun[term, first]
            yield {**row, "began_ms": frame.wall_ms, "tenure_ms": max(0, until - frame.wall_ms), "held_by": number,
                   "leader_source": "log",
                   **{name: told[name] for name in ("leader", "cause", "previous_leader", "election_ms")}}


def _traced_leader(world: World, cluster: str, group: int, term: int) -> str | None:
    """Who says of itself that it led."""
    claims = {event["node"] for event in world.events
              if (event["cluster"], event["group"], event["term"]) == (cluster, group, term)
              and (event["event"] == "BecameLeader" or (event["event"] == "CommitAdvanced" and event["counted"]))}
    return claims.pop() if len(claims) == 1 else None


def _begins_some_log(world: World, cluster: str, group: int, term: int) -> bool:
    firsts = [min(frames, key=lambda frame: frame.first) for node, number, frames in held(world)
              if (node.cluster, number) == (cluster, group) and frames]
    return any(frame.term == term and frame.first > 1 for frame in firsts)


def by(rows: Iterator[Row], *names: str) -> list[tuple[Row, list[Row]]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return [(dict(zip(names, key, strict=True)), members) for key, members in found.items()]


def tenure(world: World) -> Iterator[Row]:
    for whose, of_group in by(leadership(world), "cluster", "group"):
        total = sum(map(_shown_ms, of_group))
        for leader, rows in by(iter(of_group), "leader"):
            whole = [row["tenure_ms"] for row in rows if row["tenure_ms"] is not None]
            led = sum(map(_shown_ms, rows))
            yield {**whose, **leader, "leaderships": len(rows), "led_ms": led, "longest_ms": max(whole, default=None),
                   "median_ms": median(whole), "entries": sum(row["entries"] for row in rows),
                   "share": led / total if total else None}


def _shown_ms(row: Row) -> int:
    """How much of it is in the log."""
    begin = row["first_write_ms"] if row["began_ms"] is None else row["began_ms"]
    shown: int = max(0, row["until_ms"] - begin)
    return shown


def churn(world: World) -> Iterator[Row]:
    for whose, rows in by(leadership(world), "cluster", "group"):
        led = [row["tenure_ms"] for row in rows if row["tenure_ms"] is not None]
        yield {**whose, "leaderships": len(rows), "leaders": len({row["leader"] for row in rows} - {None}),
               "mean_tenure_ms": sum(led) / len(led) if led else None, "shortest_ms": min(led, default=None),
               "longest_ms": max(led, default=None)}


def elections(world: World) -> Iterator[Row]:
    for cluster, group in world.groups():
        traced = [event for event in world.events if (event["cluster"], event["group"]) == (cluster, group)]
        terms = {frame.term for frame in world.frames() if (frame.cluster, frame.group) == (cluster, group)}
        for frame, told, _ in won(world, cluster, group):
            reached = frame.first == 1 or any(
                frames[0].first < frame.first <= frames[-1].last for node, number, frames in held(world)
                if frames and (node.cluster, number) == (cluster, group))
            earlier = max((term for term in terms if term < frame.term),
                          default=0 if frame.first == 1 else None) if reached else None
            before = frame.term - 1 if earlier is None else earlier
            lost = [event for event in traced if event["event"] == "RoundEnded" and not event["probe"]
                    and event["result"] != "PASSED" and before < event["term"] <= frame.term]
            yield of(cluster, group, term=frame.term, leader=told["leader"], wall_ms=frame.wall_ms, cause=told["cause"],
                     rounds=told["rounds"], election_ms=told["election_ms"], votes=len(told["votes"]),
                     previous_leader=told["previous_leader"],
                     terms_lost=None if earlier is None else frame.term - earlier - 1,
                     split_votes=len(lost) if traced else None,
                     split_votes_source="trace" if traced else "not recorded")


def election_causes(world: World) -> Iterator[Row]:
    for whose, rows in by(elections(world), "cluster", "group", "cause"):
        took, split = [row["election_ms"] for row in rows], [row["split_votes"] for row in rows]
        lost = [row["terms_lost"] for row in rows if row["terms_lost"] is not None]
        yield {**whose, "elections": len(rows), "median_ms": median(took), "longest_ms": max(took),
               "most_rounds": max(row["rounds"] for row in rows), "terms_lost": sum(lost) if lost else None,
               "split_votes": None if None in split else sum(split)}


# --- do the replicas agree ---------------------------------------------------------------------------------------


def audit(world: World) -> Iterator[Row]:
    def found(severity: str, finding: str, frame: Plain, source: str = "log") -> Row:
        return {"severity": severity, "finding": finding, "source": source, **of(
            frame.cluster, frame.group, node=frame.node, file=frame.file, offset=frame.offset, term=frame.term,
            index=frame.first)}

    for cluster, group in world.groups():
        logs = {node.node: [frame for frame in node.frames if frame.group == group and not frame.truncated]
                for node in world.nodes if node.cluster == cluster}
        for frames in logs.values():
            for before, after in pairwise(frames):
                assert after.first == before.last + 1 and after.term >= before.term, "no gap was planted"
        marks: dict[int, Counter[int]] = defaultdict(Counter)
        terms = {frame.mark: frame.term for frames in logs.values() for frame in frames}
        for frames in logs.values():
            for frame in frames:
                marks[frame.first][frame.mark] += 1
        for frames in logs.values():
            for frame in frames:
                most = max(marks[frame.first], key=lambda mark: (marks[frame.first][mark], terms[mark], mark))
                if frame.mark != most:
                    knew = [event["index"] for event in world.events if event["event"] == "CommitAdvanced"
                            and (event["cluster"], event["group"], event["node"]) == (cluster, group, frame.node)]
                    if frame.term == terms[most]:
                        yield found("critical", "log_mismatch", frame)
                    elif max(knew, default=0) >= frame.first:
                        yield found("critical", "committed_divergence", frame, source="trace")
                    else:
                        yield found("note", "stale_suffix", frame)
                    break
        terms_begun = Counter(frame.term for frame, _, _ in won(world, cluster, group))
        assert set(terms_begun.values()) <= {1}, "no two leaderships were planted in one term"
    for node in world.nodes:
        cast: dict[tuple[int, int], str] = {}
        for group, term, candidate, file, offset in node.votes:
            if cast.setdefault((group, term), candidate) != candidate:
                yield {"severity": "critical", "finding": "two_votes", "source": "log", **of(
                    node.cluster, group, node=node.node, term=term, index=None, file=file, offset=offset)}
        for event in world.events:
            if event["event"] == "Truncated" and (event["cluster"], event["node"]) == (node.cluster, node.node):
                told = [each["index"] for each in world.events if each["event"] == "CommitAdvanced" and all(
                    each[name] == event[name] for name in ("cluster", "node", "group"))]
                assert max(told, default=0) < event["first"], "nothing committed was cut off"


def audit_checks(world: World) -> Iterator[Row]:
    copies = Counter((frame.cluster, frame.group, frame.first) for frame in world.frames() if not frame.truncated)
    told = sum(event["event"] == "CommitAdvanced" for event in world.events)
    for check, number in {
        "frames whose checksums and chain were verified": len(list(world.frames())),
        "frames held by more than one replica": sum(number > 1 for number in copies.values()),
        "terms with a leadership": len({(f.cluster, f.group, f.term) for f in world.frames() if f.kind == 2}),
        "votes on record": sum(len(node.votes) for node in world.nodes),
        "truncations on record": sum(len(node.cuts) for node in world.nodes),
    }.items():
        yield {"check": check, "n": number, "source": "log"}
    yield {"check": "commit indexes told by traces", "n": told, "source": "trace" if told else "not recorded"}


# --- how fast, how much ------------------------------------------------------------------------------------------


def waits(world: World, cluster: str, group: int) -> list[tuple[int, float, int]]:
    """(wall_us, ms, sample_every) of each frame that a leader wrote, until the first commit that covers it."""
    mine = [event for event in world.events if (event["cluster"], event["group"]) == (cluster, group)]
    counted = [event for event in mine if event["event"] == "CommitAdvanced" and event["counted"]]
    out = []
    for event in mine:
        if event["event"] != "Appended" or event["entry_term"] != event["term"]:
            continue
        done = [commit["at_ns"] for commit in counted if commit["index"] >= event["last"] and all(
            commit[name] == event[name] for name in ("node", "term"))]
        if done:
            out.append((event["wall_us"], (min(done) - event["at_ns"]) / 1e6, event["sample_every"]))
    return out


def commit_latency(world: World) -> Iterator[Row]:
    for cluster, group in world.groups():
        found = waits(world, cluster, group)
        took = [ms for _, ms, _ in found]
        yield of(cluster, group, measured=len(found), p50_ms=percentile(took, 0.5), p90_ms=percentile(took, 0.9),
                 p99_ms=percentile(took, 0.99), max_ms=max(took, default=None),
                 exact=max(every for _, _, every in found) == 1 if found else None,
                 source="trace" if found else "not recorded")


def commit_latency_over_time(world: World) -> Iterator[Row]:
    for cluster, group in world.groups():
        buckets: dict[int, list[float]] = defaultdict(list)
        for wall_us, took, _ in waits(world, cluster, group):
            buckets[wall_us // 1_000 // world.bucket_ms * world.bucket_ms].append(took)
        for bucket, mine in buckets.items():
            yield of(cluster, group, bucket_ms=bucket, measured=len(mine), p50_ms=percentile(mine, 0.5),
                     p99_ms=percentile(mine, 0.99))


def throughput(world: World) -> Iterator[Row]:
    for cluster, group in world.groups():
        buckets: dict[int, list[Plain]] = defaultdict(list)
        for frame in world.once(cluster, group):
            buckets[frame.wall_ms // world.bucket_ms * world.bucket_ms].append(frame)
        for bucket, frames in buckets.items():
            entries, size = sum(len(each.payloads) for each in frames), sum(each.bytes for each in frames)
            yield of(cluster, group, bucket_ms=bucket, frames=len(frames), entries=entries, payload_bytes=size,
                     entries_per_s=entries * 1_000 / world.bucket_ms,
                     payload_bytes_per_s=size * 1_000 / world.bucket_ms)


def skew(world: World) -> Iterator[Row]:
    logs = {key: world.once(*key) for key in world.groups()}
    counts = {key: sum(len(frame.payloads) for frame in frames) for key, frames in logs.items()}
    total, so_far = sum(counts.values()), 0
    for rank, key in enumerate(sorted(counts, key=lambda key: (-counts[key], key)), 1):
        so_far += counts[key]
        size = sum(frame.bytes for frame in logs[key])
        yield of(*key, rank=rank, entries=counts[key], payload_bytes=size, share=counts[key] / total,
                 cumulative_share=so_far / total, entries_per_frame=counts[key] / len(logs[key]),
                 mean_entry_bytes=size / counts[key], hot=len(counts) > 1 and counts[key] / total * len(counts) >= 3)


def entry_sizes(world: World) -> Iterator[Row]:
    for cluster, group in world.groups():
        replicas = [[len(payload) for frame in node.frames if (frame.group, frame.kind) == (group, 1)
                     and not frame.truncated for payload in frame.payloads]
                    for node in world.nodes if node.cluster == cluster]
        sizes = max(replicas, key=len)
        yield of(cluster, group, entries=len(sizes), p50_bytes=percentile(sizes, 0.5), p90_bytes=percentile(sizes, 0.9),
                 p99_bytes=percentile(sizes, 0.99), max_bytes=max(sizes), mean_bytes=sum(sizes) / len(sizes))


def held(world: World) -> Iterator[tuple[Node, int, list[Plain]]]:
    for node in world.nodes:
        for group in sorted({frame.group for frame in node.frames}):
            yield node, group, [frame for frame in node.frames if frame.group == group and not frame.truncated]


def lag(world: World) -> Iterator[Row]:
    for node, group, frames in held(world):
        copies = [mine for other, number, mine in held(world) if (other.cluster, number) == (node.cluster, group)]
        added = [event for event in world.events if event["event"] == "Appended"
                 and (event["cluster"], event["group"]) == (node.cluster, group)]
        leads = {(event["node"], event["term"]) for event in world.events if event["event"] == "CommitAdvanced"
                 and event["counted"] and (event["cluster"], event["group"]) == (node.cluster, group)}
        behind = [(mine["wall_us"] - theirs["wall_us"]) / 1_000 for mine in added for theirs in added
                  if mine["node"] == node.node != theirs["node"] and mine["mark"] == theirs["mark"]
                  and (theirs["node"], theirs["term"]) in leads and theirs["entry_term"] == theirs["term"]]
        last = max(frame.last for frame in frames)
        yield of(node.cluster, group, node=node.node, last_index=last,
                 behind_entries=max(frame.last for mine in copies for frame in mine) - last,
                 behind_ms=max(frame.wall_ms for mine in copies for frame in mine) - max(f.wall_ms for f in frames),
                 measured=len(behind), p50_ms=percentile(behind, 0.5), p99_ms=percentile(behind, 0.99),
                 max_ms=max(behind, default=None), source="trace" if behind else "not recorded")


def compaction(world: World) -> Iterator[Row]:
    for node, group, frames in held(world):
        taken = sorted(each[1:] for each in node.snapshots if each[0] == group)
        index, size, when = taken[-1] if taken else (None, None, None)
        last = max(frame.last for frame in frames)
        yield of(node.cluster, group, node=node.node, first_index=min(frame.first for frame in frames), last_index=last,
                 log_bytes=sum(frame.size for frame in frames), snapshots=len(taken), snapshot_index=index,
                 snapshot_bytes=size, snapshot_taken_ms=when, entries_since_snapshot=last - (index or 0),
                 installs=sum(number == group for number, _ in node.installs))


# --- what controllers decided ------------------------------------------------------------------------------------


@attrs.define
class Story:
    """What one controller group's commands made of one broker group."""

    where: Row
    until_ms: int = 0
    codes: dict[int, str] = attrs.field(factory=dict)
    refused: list[tuple[int, str]] = attrs.field(factory=list)
    shared: list[Row] = attrs.field(factory=list)
    masters: list[Row] = attrs.field(factory=list)
    sets: list[tuple[int, set[int], set[int]]] = attrs.field(factory=list)
    """(wall_ms, before, after) of what brokers reported."""
    seen: list[tuple[int, int, bool]] = attrs.field(factory=list)
    """(index, wall_ms, whether the master was there)."""
    master: int | None = None
    epoch: int = 0
    in_sync: set[int] = attrs.field(factory=set)


def stories(world: World, groups: Sequence[tuple[str, int]]) -> Iterator[Story]:
    for cluster, group in groups:
        log = max((node for node in world.nodes if node.cluster == cluster),
                  key=lambda node: max((f.term, f.last) for f in node.frames if f.group == group and not f.truncated))
        story = Story({})
        for frame in log.frames:
            if (frame.group, frame.truncated) == (group, False):
                story.until_ms = max(story.until_ms, frame.wall_ms if frame.kind == 1 else 0)
                for index, payload in enumerate(frame.payloads if frame.kind == 1 else (), frame.first):
                    _, kind, _, broker_cluster, name, *fields = cbor2.loads(payload)
                    story.where = of(cluster, group, broker_cluster=broker_cluster, broker_name=name)
                    _tell(story, kind, fields, index, frame.wall_ms)
        yield story


def _tell(story: Story, kind: int, fields: list[Any], index: int, wall_ms: int) -> None:
    if kind == APPLY:
        broker, code = fields
        if story.codes.setdefault(broker, code) != code:
            story.refused.append((broker, code.partition(";")[0]))
        return
    if story.in_sync:
        story.seen.append((index, wall_ms, story.master in fields[-1]))
    if kind == REGISTER:
        broker, address = fields[:2]
        if (broker, address) in story.refused:
            story.shared.append({"finding": "shared", **story.where, "broker_id": broker, "index": index,
                                 "wall_ms": wall_ms})
    elif kind == ALTER:
        if story.in_sync != set(fields[2]):
            story.sets.append((wall_ms, story.in_sync, set(fields[2])))
        story.in_sync = set(fields[2])
    elif kind == ELECT:
        _, asking, _, unclean, _, _, live = fields
        wanted = story.in_sync & set(live) or (set(live) if unclean else set())
        chosen = min(wanted, default=None) if story.in_sync else asking
        clean = None if chosen is None else not story.in_sync or chosen in story.in_sync
        story.epoch += 1
        story.masters.append({
            **story.where, "index": index, "wall_ms": wall_ms, "master_epoch": story.epoch, "master": chosen,
            "previous": story.master, "clean": clean})
        story.seen.append((index, wall_ms, chosen is not None))
        story.master, story.in_sync = chosen, story.in_sync if chosen is None else {chosen}


def outages(story: Story) -> Iterator[Row]:
    lost: tuple[int, int] | None = None
    for index, wall_ms, there in story.seen:
        if not there and lost is None:
            lost = index, wall_ms
        elif there and lost is not None:
            new = next(row["master"] for row in story.masters if row["index"] == index)
            yield {**story.where, "index": lost[0], "lost_ms": lost[1], "recovered_ms": wall_ms, "new_master": new,
                   "recovery_ms": wall_ms - lost[1], "lasted_ms": wall_ms - lost[1]}
            lost = None
    if lost is not None:
        yield {**story.where, "index": lost[0], "lost_ms": lost[1], "recovered_ms": None, "new_master": None,
               "recovery_ms": None, "lasted_ms": story.until_ms - lost[1]}


def availability(story: Story) -> Row:
    begun = [row for row in story.masters if row["master"] is not None]
    without = [row["lasted_ms"] for row in outages(story)]
    first = begun[0]["wall_ms"]
    return {**story.where, "from_ms": first, "until_ms": story.until_ms, "masters": len(begun),
            "outages": len(without), "without_master_ms": sum(without), "longest_ms": max(without, default=0),
            "availability": 1 - sum(without) / (story.until_ms - first),
            "unclean_elections": sum(row["clean"] is False for row in begun)}


def sync_state_sets(story: Story) -> Row:
    flaps, left = 0, dict[int, int]()
    for wall_ms, before, after in story.sets:
        flaps += sum(broker in left and wall_ms - left[broker] <= 60_000 for broker in after - before)
        left = {broker: at for broker, at in left.items() if broker not in after} | dict.fromkeys(
            before - after, wall_ms)
    moved = [(before, after) for _, before, after in story.sets]
    return {**story.where, "changes": len(moved), "shrinks": sum(bool(a - b) for a, b in moved),
            "expands": sum(bool(b - a) for a, b in moved), "smallest": min(len(b) for _, b in moved), "flaps": flaps}


# --- two periods ---------------------------------------------------------------------------------------------------


def compare(world: World, told: Sequence[Story]) -> Iterator[Row]:
    for cluster, group in world.groups():
        sides = [_figures(world, told, cluster, group, *span) for span in pairwise(world.bounds)]
        for (metric, unit) in sorted(sides[0].keys() | sides[1].keys()):
            before, after = (side.get((metric, unit), 0.0 if unit == "count" else None) for side in sides)
            change = None if before is None or after is None else after - before
            yield of(cluster, group, metric=metric, unit=unit, before=before, after=after, change=change,
                     change_share=change / before if before and change is not None else None)


def _figures(
    world: World, told: Sequence[Story], cluster: str, group: int, since: int, until: int,
) -> dict[tuple[str, str], float]:
    frames = [frame for frame in world.once(cluster, group) if since <= frame.wall_ms < until]
    begun = [(frame, noop) for frame, noop, _ in won(world, cluster, group) if since <= frame.wall_ms < until]
    took = [ms for wall_us, ms, _ in waits(world, cluster, group) if since * 1_000 <= wall_us < until * 1_000]
    changed = [row for story in told for row in story.masters if since <= row["wall_ms"] < until
               and (row["cluster"], row["group"]) == (cluster, str(group))]
    out: dict[tuple[str, str], float] = {}
    if frames:
        entries, size = sum(len(frame.payloads) for frame in frames), sum(frame.bytes for frame in frames)
        out |= {("entries", "per s"): entries * 1_000 / (until - since),
                ("payload", "bytes per s"): size * 1_000 / (until - since), ("mean entry", "bytes"): size / entries}
    if begun:
        out |= {("elections", "count"): len(begun),
                ("longest election", "ms"): max(noop["election_ms"] for _, noop in begun)}
    if took:
        out |= {("median commit", "ms"): percentile(took, 0.5) or 0.0,
                ("99th percentile of commit", "ms"): percentile(took, 0.99) or 0.0}
    if changed:
        out["master changes", "count"] = len(changed)
    return out


def answers(world: World, controller_groups: Sequence[tuple[str, int]]) -> dict[str, list[Row]]:
    """By question."""
    told = list(stories(world, controller_groups))
    from_log: tuple[Callable[[World], Iterator[Row]], ...] = (
        leadership, tenure, churn, elections, election_causes, audit, audit_checks, commit_latency,
        commit_latency_over_time, throughput, skew, entry_sizes, lag,
        compaction)
    return {
        **{question.__name__: list(question(world)) for question in from_log},
        "master_changes": [row for story in told for row in story.masters],
        "outages": [row for story in told for row in outages(story)],
        "availability": [availability(story) for story in told],
        "sync_state_sets": [sync_state_sets(story) for story in told],
        "broker_ids": [row for story in told for row in story.shared],
        "compare": list(compare(world, told)),
    }
