"""What the monitor alerts on, row by row, without Spark and without a clock."""

from __future__ import annotations

from typing import Any

from analysis.watch import FRAMES_KEPT, FRAMES_MAX, Alert, Watch


def frame(node: str, index: int, mark: int, *, term: int = 1, group: str = "g") -> dict[str, Any]:
    return {"cluster": "c", "group": group, "group_id": 1, "node": node, "index": index, "term": term, "mark": mark,
            "file": f"{node}.seg", "offset": index * 100, "damage": None, "reason": None}


def event(kind: str, node: str, term: int) -> dict[str, Any]:
    return {"cluster": "c", "group": "g", "group_id": 1, "node": node, "kind": kind, "term": term, "damage": None}


def told(name: str, node: str, **fields: Any) -> dict[str, Any]:
    return {"cluster": "c", "event": name, "group_id": 1, "node": node, "term": 1, "asked_term": None, "leader": None,
            **fields}


def kinds(alerts: list[Alert]) -> list[str]:
    return [alert.kind for alert in alerts]


def test_replicas_that_agree_are_quiet() -> None:
    watch = Watch()
    for node in ("n0", "n1", "n2"):
        assert list(watch.frames([frame(node, index, 7 * index) for index in range(1, 50)], 0)) == []
    assert list(watch.tick(10**9)) == []


def test_two_frames_at_one_index_and_term_alert_at_once_and_once() -> None:
    watch = Watch()
    list(watch.frames([frame("n0", 1, 5), frame("n0", 2, 6)], 0))
    (alert,) = watch.frames([frame("n1", 1, 5), frame("n1", 2, 9)], 30)
    assert (alert.kind, alert.group, alert.node, alert.index, alert.file, alert.offset) == (
        "log_mismatch", "g", "n1", 2, "n1.seg", 200)
    assert list(watch.tick(10**9)) == []


def test_entries_of_a_deposed_leader_have_grace() -> None:
    watch = Watch(grace_ms=1_000)
    assert list(watch.frames([frame("n0", 5, 1, term=1), frame("n1", 5, 2, term=2)], 0)) == []
    assert list(watch.tick(1_000)) == []
    (alert,) = watch.tick(1_001)
    assert (alert.kind, alert.node, alert.index, alert.since_ms) == ("stale_suffix", "n0", 5, 0)


def test_a_replica_that_cut_its_entries_in_time_is_quiet() -> None:
    watch = Watch(grace_ms=1_000)
    list(watch.frames([frame("n0", 5, 1, term=1), frame("n0", 6, 3, term=1), frame("n1", 5, 2, term=2)], 0))
    assert list(watch.frames([frame("n0", 5, 2, term=2)], 900)) == []
    assert list(watch.tick(5_000)) == []


def test_damage_is_told_where_it_is() -> None:
    row = {**frame("n0", 1, 1), "damage": "crc", "reason": "a bit", "index": None}
    (alert,) = Watch().frames([row], 3)
    assert (alert.kind, alert.file, alert.offset, alert.detail) == ("damage", "n0.seg", 100, "crc: a bit")


def test_a_vote_that_no_leadership_follows() -> None:
    watch = Watch(no_leader_ms=500)
    list(watch.events([event("noop", "n0", 1), event("hard_state", "n1", 2)], 100))
    assert list(watch.tick(600)) == []
    assert kinds(list(watch.tick(601))) == ["no_leader"]
    assert list(watch.tick(900)) == [], "once"
    (over,) = watch.events([event("noop", "n1", 2)], 950)
    assert (over.kind, over.since_ms, over.at_ms) == ("leader_again", 100, 950)


def test_an_election_that_succeeds_is_quiet() -> None:
    watch = Watch(no_leader_ms=500)
    list(watch.events([event("hard_state", "n1", 2), event("noop", "n1", 2), event("hard_state", "n0", 2)], 100))
    assert list(watch.tick(10_000)) == []


def test_frames_of_the_old_term_do_not_end_a_real_vote_but_a_probe() -> None:
    for start, expected in ((event("hard_state", "n1", 2), ["no_leader"]), (None, [])):
        watch = Watch(no_leader_ms=500)
        list(watch.frames([frame("n0", 1, 5)], 0))
        if start is not None:
            list(watch.events([start], 100))
        else:
            list(watch.trace([told("RoundStarted", "n1", asked_term=2)], 100))
        list(watch.frames([frame("n0", 2, 6)], 200))
        assert kinds(list(watch.tick(1_000))) == expected


def test_a_candidate_that_hears_its_leader_again() -> None:
    watch = Watch(no_leader_ms=500)
    list(watch.frames([frame("n0", 1, 5)], 0))
    list(watch.trace([told("RoundStarted", "n1", asked_term=2)], 100))
    (alert,) = watch.tick(700)
    assert (alert.cluster, alert.group) == ("c", "g"), "a trace knows the number of the group only"
    assert kinds(list(watch.trace([told("BecameFollower", "n2", leader="n0")], 800))) == []
    assert kinds(list(watch.trace([told("BecameFollower", "n1", leader="n0")], 800))) == ["leader_again"]


def test_clusters_with_groups_of_one_number_are_kept_apart() -> None:
    watch = Watch(no_leader_ms=500)
    list(watch.frames([frame("n0", 1, 5)], 0))
    assert list(watch.frames([{**frame("n0", 1, 6), "cluster": "d", "group": "h"}], 0)) == []
    list(watch.trace([{**told("RoundStarted", "n0", asked_term=2), "cluster": "d"}], 100))
    (alert,) = watch.tick(700)
    assert (alert.kind, alert.cluster, alert.group) == ("no_leader", "d", "h")


def test_memory_is_bounded_while_a_replica_is_silent() -> None:
    watch = Watch()
    rows = [frame("n0", index, index) for index in range(1, FRAMES_MAX + 500)]
    list(watch.frames([frame("n1", 1, 1)], 0))
    list(watch.frames(rows, 0))
    (group,) = watch._groups.values()
    assert len(group.held["n0"]) == FRAMES_MAX
    list(watch.frames([frame("n1", index, index) for index in range(2, FRAMES_MAX + 500)], 0))
    assert {len(frames) for frames in group.held.values()} == {FRAMES_KEPT}
