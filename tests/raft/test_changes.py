"""A leader's way to another membership: one entry at a time, everyone's directory on record, an answer in the end."""

from __future__ import annotations

import pytest

from raft.changes import Changes
from raft.config import MS, NEVER
from raft.errors import Rejected, RejectReason
from raft.membership import Membership
from raft.storage.memory import MemoryStorage
from tests.raft.script import Script, led


def changes(script: Script) -> Changes:
    leadership = script["n0"].leadership
    assert leadership is not None
    return leadership.changes


def end(script: Script, ticket: int) -> tuple[object, ...]:
    """(reason, words, unknown)"""
    resolved = script.nodes["n0"].resolved[ticket]
    return resolved.refused, resolved.detail, resolved.unknown


def tick(script: Script, at: int) -> None:
    script.now = at
    script["n0"].tick(at)
    script.pump("n0")


def with_a_joiner() -> Script:
    script = led(3)
    script.start("n3", MemoryStorage(), Membership())
    script.settle()
    return script


def test_who_does_not_catch_up_in_time_is_named_and_stays_a_learner() -> None:
    script = with_a_joiner()
    script.cut("n3")
    began = script.now
    ticket = script.reconfigure("n0", ["n0", "n1", "n2", "n3"])
    deadline = changes(script).deadline
    assert deadline == began + script.config.reconfigure_timeout_ms * MS
    script.elapse((deadline - script.now) / MS - 5)
    assert changes(script).waiting == ("n3",) and script["n0"].membership.learners == ("n3",)
    tick(script, deadline - 1)
    assert script.outcome("n0", ticket) == "open"
    tick(script, deadline)
    assert end(script, ticket) == (RejectReason.NOT_CAUGHT_UP, "n3 did not catch up; still learners", False)
    assert (changes(script).desired, changes(script).waiting, changes(script).deadline) == (None, (), NEVER)
    assert script["n0"].membership.learners == ("n3",)


def test_a_step_that_does_not_commit_in_time_may_commit_later() -> None:
    script = with_a_joiner()
    for name in ("n1", "n2"):
        script.nodes[name].syncing = False
    ticket = script.reconfigure("n0", ["n0", "n1", "n2"], ["n3"])
    script.settle()
    deadline = changes(script).deadline
    script.elapse((deadline - script.now) / MS - 5)
    tick(script, deadline)
    assert end(script, ticket) == (RejectReason.TIMED_OUT, "", True)


def test_a_directory_met_while_an_entry_is_under_way_is_recorded_behind_it() -> None:
    script = with_a_joiner()
    script.start("n4", MemoryStorage(), Membership())
    replica = script["n0"]
    del replica.identities.met["n4"]
    for name in ("n1", "n2"):
        script.nodes[name].syncing = False
    ticket = script.reconfigure("n0", ["n0", "n1", "n2"], ["n3", "n4"])
    script.settle()
    under_way = replica.log.membership_index
    assert under_way > replica.commit_index and replica.membership.members["n4"].incarnation == b""
    replica.identities.meet(script.now, "n4", script.incarnations["n4"])
    script.pump("n0")
    assert replica.log.membership_index == under_way, "one entry at a time"
    for name in ("n1", "n2"):
        script.nodes[name].syncing = True
        script.sync(name)
    script.settle()
    assert replica.membership.members["n4"].incarnation == script.incarnations["n4"]
    assert script.outcome("n0", ticket) == "done"


def test_a_directory_is_recorded_before_the_change_that_is_asked_for() -> None:
    script = Script(3)
    replica = script["n0"]
    del replica.identities.met["n2"]
    script.elect("n0")
    script.settle()
    assert replica.membership.members["n2"].incarnation == b""
    for name in ("n1", "n2"):
        script.nodes[name].syncing = False
    replica.identities.met["n2"] = script.incarnations["n2"]
    changes(script).met_again()
    before = replica.log.last_index
    script.reconfigure("n0", ["n0", "n1"])
    script.settle()
    assert replica.log.last_index == before + 1
    assert replica.membership.voters == ("n0", "n1", "n2")
    assert replica.membership.members["n2"].incarnation == script.incarnations["n2"]


def handing_over(script: Script) -> None:
    """To n1, which does not take over."""
    script.filter = lambda mail: "n1" not in (mail.source, mail.target)
    script.propose("n0", b"behind")
    script.settle()
    script.transfer("n0", "n1")


def test_a_directory_met_while_leadership_is_handed_over_is_recorded_if_it_stays() -> None:
    script = with_a_joiner()
    replica = script["n0"]
    del replica.identities.met["n3"]
    ticket = script.reconfigure("n0", ["n0", "n1", "n2"], ["n3"])
    script.elapse(100)
    assert script.outcome("n0", ticket) == "done" and replica.membership.members["n3"].incarnation == b""
    handing_over(script)
    replica.identities.meet(script.now, "n3", script.incarnations["n3"])
    script.elapse(script.config.transfer_timeout_ms + 100)
    assert replica.leadership is not None and not replica.leadership.transfer.busy
    script.propose("n0", b"stays")
    script.settle()
    assert replica.membership.members["n3"].incarnation == script.incarnations["n3"]


def test_a_change_goes_on_after_a_hand_over_that_was_given_up() -> None:
    script = with_a_joiner()
    script.cut("n3")
    ticket = script.reconfigure("n0", ["n0", "n1", "n2", "n3"])
    script.elapse(100)
    assert changes(script).waiting == ("n3",)
    script.cuts.clear()
    handing_over(script)
    script.elapse(script.config.transfer_timeout_ms - 100)
    assert changes(script).waiting == ("n3",), "it has caught up, but nothing changes meanwhile"
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done"


def test_one_change_at_a_time_and_none_that_cannot_be() -> None:
    script = led(3)
    with pytest.raises(Rejected, match="at least one voter") as error:
        script.reconfigure("n0", [])
    assert error.value.reason == RejectReason.ILLEGAL_CHANGE
    assert changes(script).desired is None
    script.reconfigure("n0", ["n0", "n1"])
    with pytest.raises(Rejected) as error:
        script.reconfigure("n0", ["n0", "n1"])
    assert error.value.reason == RejectReason.CHANGE_IN_PROGRESS


def test_a_leader_that_leaves_on_the_way_does_not_know_how_it_ends() -> None:
    script = with_a_joiner()
    script.cut("n3")
    ticket = script.reconfigure("n0", ["n0", "n1", "n2", "n3"])
    script.settle()
    script["n0"].step_down("for this test")
    script.pump("n0")
    assert end(script, ticket) == (None, "leadership was lost on the way", True)


def test_no_change_begins_while_leadership_is_handed_over() -> None:
    script = led(3)
    script.cut("n1")
    script.propose("n0", b"behind")
    script.transfer("n0", "n1")
    with pytest.raises(Rejected) as error:
        script.reconfigure("n0", ["n0", "n2"])
    assert error.value.reason == RejectReason.TRANSFERRING
