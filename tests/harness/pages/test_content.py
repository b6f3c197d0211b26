"""What the page tells, by hand: columns, lanes that processes share, gaps, and the operation that failed."""

from __future__ import annotations

from harness.checkers.linearizability import check
from harness.checkers.models import Register
from harness.checkers.recovery import Fault, Recovery
from harness.checkers.verdict import as_json
from harness.histories.events import INFO, INVOKE, OK, Event, operations
from harness.pages.content import Seen, WholeRun, content, merged, messages_from_json

MS = 1_000_000
ROWS = ((0, INVOKE, 0, "write", 1), (10, OK, 0, "write", 1), (20, INVOKE, 1, "write", 2), (30, INFO, 1, "write", 2),
        (30, INVOKE, 2, "read", None), (90, OK, 2, "read", 7))
EVENTS = [Event(number, kind, process, f, None, value, at * MS, None, number + 1)
          for number, (at, kind, process, f, value) in enumerate(ROWS)]


def test_what_the_page_tells() -> None:
    verdict = as_json([check(EVENTS, Register)])
    told = content(WholeRun("run-1", {"seed": 3}, verdict, operations(EVENTS), [Fault("kill", 15 * MS, None, ("n1",))],
                        [Recovery(Fault("kill", 15 * MS), None, accepted=4.0)], shrunk="kill n1"))
    assert told["valid"] is False
    assert told["counts"] == [2, 0, 1]
    assert told["operations"]["start"] == [0, 20_000, 30_000]
    assert told["operations"]["took"] == [10_000, 10_000, 60_000]
    assert told["operations"]["lane"] == [0, 0, 0] and told["lanes"] == ["0 …"], "one after the other"
    assert told["operations"]["value"] == ["1", "2", " → 7"]
    assert told["failing"] == 2
    assert told["gaps"] == [{"lane": "0 …", "took": 80_000, "from": 10_000}]
    assert told["faults"] == [{"name": "kill", "on": ["n1"], "start": 15_000, "end": 15_000}]
    assert told["promises"][0]["checker"] == "linearizable"
    assert told["promises"][0]["prefix"] == 6
    assert told["recovery"] == [
        {"fault": "kill", "definition": "accepted", "p50": 4.0, "p99": 4.0, "most": 4.0, "seen": 1, "missing": 0}]


def test_what_is_open_together_has_lanes_of_its_own() -> None:
    both = [Event(0, INVOKE, 0, "read", "k", None, 0), Event(1, INVOKE, 1, "read", "k", None, MS)]
    told = content(WholeRun("r", {}, {}, operations(both)))
    assert told["operations"]["lane"] == [0, 1]
    assert told["operations"]["took"] == [-1, -1]
    assert (told["valid"], told["failing"], told["keys"]) == ("unknown", -1, ["k"])


def test_messages_of_a_trace() -> None:
    rows = [{"from": "a", "to": "b", "sent_ns": 1_000, "received_ns": 3_000, "what": "append"},
            {"from": "b", "to": "a", "sent_ns": 4_000}]
    told = content(WholeRun("r", {}, {}, [], messages=messages_from_json(rows)))
    assert told["messages"] == [["a", "b", 1, 3, "append"], ["b", "a", 4, None, ""]]


def test_groups_share_a_page_and_no_lane() -> None:
    def seen(shift: int) -> Seen:
        moved = [each._replace(time_ns=each.time_ns + shift) for each in EVENTS]
        fault = Fault("kill", 15 * MS + shift, 25 * MS + shift, ("n1",))
        return Seen(operations(moved), [fault], [Recovery(fault, "k", accepted=4.0)])

    told = content(merged("run-1", {}, {}, {"one": seen(MS), "two": seen(0)}))
    assert told["groups"] == ["one", "two"] and told["lanes"] == ["one 0 …", "two 0 …"]
    assert told["operations"]["start"] == [0, 1_000, 20_000, 21_000, 30_000, 31_000], "in the order of time"
    assert told["operations"]["lane"] == [1, 0, 1, 0, 1, 0]
    assert [each["on"] for each in told["faults"]] == [["two n1"], ["one n1"]]
    assert {each["fault"] for each in told["recovery"]} == {"one: kill", "two: kill"}
