"""Who is heard where strangers are kept out: the core's part, by hand-driven groups."""

from __future__ import annotations

import pytest

from raft.config import Config
from raft.membership import Member, Membership
from raft.messages import Append, AppendReply, Code, PeerMessage, Role
from raft.storage.memory import MemoryStorage
from raft.trace import Dropped
from tests.raft.script import Script, led

HIGH = 99
"""A term beyond any here."""


def closed(script: Script) -> Script:
    for node in script.nodes.values():
        node.replica.following.members_only = True
    return script


def usurps(term: int = HIGH) -> Append:
    """What a leader of a later term would say."""
    return Append(1, term, 1, 1, 0, 0, 0, 0)


def refused(script: Script, name: str) -> list[str]:
    return [event.message for event in script.nodes[name].traces
            if isinstance(event, Dropped) and event.reason == "no member"]


@pytest.mark.parametrize("name", ["n0", "n1"])
@pytest.mark.parametrize("message", [usurps(), AppendReply(1, HIGH, 1, 1, Code.EXPIRED_TERM, 0, 0, 0, 0, 0)], ids=str)
def test_BUG_W4_a_stranger_deposes_nobody_while_the_leader_is_heard(name: str, message: PeerMessage) -> None:
    """A stranger said to lead in a later term, or answered in one: leader and followers went over."""
    script = closed(led(3))
    term = script[name].term
    script[name].receive(script.now, "x", message)
    assert script[name].term == term and script["n0"].role is Role.LEADER
    assert refused(script, name) == [type(message).__name__]


def test_without_the_rule_anybody_leads_in_a_later_term() -> None:
    script = led(3)
    script["n1"].receive(script.now, "x", usurps())
    assert script["n1"].leader == "x" and script["n1"].term == HIGH


def test_BUG_W4_who_hears_no_leader_follows_whoever_leads() -> None:
    """It may be behind: its membership is the older one."""
    script = closed(led(3))
    script.cut("n0")
    script.now += 10 * Config().election_timeout_ms * 1_000_000
    script["n1"].receive(script.now, "x", usurps())
    assert script["n1"].leader == "x"


def test_BUG_W4_who_knows_no_member_yet_follows_its_first_leader() -> None:
    script = closed(led(3))
    script.start("n7", MemoryStorage(), Membership())
    script["n7"].following.members_only = True
    for number, leader in enumerate("xy"):
        script["n7"].receive(script.now, leader, usurps(HIGH + number))
        assert script["n7"].leader == leader


def test_BUG_W4_members_and_the_present_leader_are_heard() -> None:
    script = closed(led(3))
    following = script["n1"].following
    assert all(map(following.hears, ("n0", "n2"))) and not following.hears("x")
    script["n1"].membership = Membership(
        ("n1", "n2"), (), (), {name: Member(f"{name}:1") for name in ("n1", "n2")})
    assert following.hears("n0"), "it leads on until its removal is committed"
    assert not script["n0"].following.hears("x")


def test_BUG_W4_a_group_that_changes_whole_goes_on() -> None:
    """Each new member is heard, and each that leaves hears of it."""
    script = closed(led(3))
    for number in (3, 4, 5):
        script.start(f"n{number}", MemoryStorage(), Membership())
        script[f"n{number}"].following.members_only = True
    ticket = script.reconfigure("n0", ["n3", "n4", "n5"])
    for _ in range(100):
        script.elapse(50)
    assert script.outcome("n0", ticket) == "done"
    leader = script.leader()
    assert leader is not None and leader.membership.voters == ("n3", "n4", "n5")
