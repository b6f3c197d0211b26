"""A disk that stands still and a group that says nothing: neither costs the others without end."""

from __future__ import annotations

from raft.config import Config
from raft.errors import Busy
from raft.frame import Frame
from raft.held import HELD_MAX, Held
from raft.messages import Append, AppendReply, Code, ReadReply, Send, Vote, VoteReply, VoteResult
from raft.writes import WRITES_MAX
from tests.raft.script import Script, frame

MINUTE_MS = 60_000
TIGHT = Config(inflight_bytes_max=16 << 10, uncommitted_bytes_max=16 << 10, message_bytes_max=16 << 10,
               append_bytes_max=4_096, frame_bytes_max=4_096, entry_bytes_max=2_048, snapshot_chunk_bytes=4_096,
               storage_stall_ms=MINUTE_MS)


def queued(script: Script, name: str) -> int:
    """Bytes of frames that wait for this node's disk."""
    return sum(len(each.data) for write in script.nodes[name].writes for each in write.frames)


def reply(number: int, peer: str = "n1") -> AppendReply:
    return AppendReply(1, 1, 1, number, Code.SUCCESS, number, number, 0, 0, 0)


def test_BUG_G1_a_sync_that_hangs_across_a_change_of_leader_holds_a_handful_of_replies() -> None:
    """A voter granted a vote, and its disk hangs for minutes: what it answers is held, and only the latest counts."""
    script = Script(3)
    script.elect("n0")
    script.elapse(200)
    script.nodes["n1"].syncing = False
    script.elect("n2")
    for _ in range(3):
        script.elapse(MINUTE_MS)
        assert 0 < len(script.nodes["n1"].held) <= 8
    script.nodes["n1"].syncing = True
    script.propose("n2", b"later")
    script.elapse(2_000)
    assert script["n1"].log.durable_index == script["n2"].log.last_index == script["n1"].commit_index
    assert len(script.nodes["n1"].held) == 0


def test_BUG_G1_of_what_says_the_same_the_latest_is_held_in_the_order_of_tokens() -> None:
    """What is held back leaves with its own write and no earlier; a probe's answer does not replace a vote's."""
    held = Held()
    granted = VoteReply(1, 1, 1, VoteResult.ACCEPT, False)
    probed = VoteReply(1, 1, 2, VoteResult.ACCEPT, True)
    held.add(Send("n1", reply(1), 1))
    held.add(Send("n1", granted, 1))
    held.add(Send("n1", probed, 1))
    held.add(Send("n2", reply(2), 1))
    held.add(Send("n1", reply(3), 2))
    assert [send.message for send in held.due(1)] == [granted, probed, reply(2)]
    assert [send.message for send in held.due(1)] == [] and len(held) == 1
    assert [send.message for send in held.due(2)] == [reply(3)] and len(held) == 0


def test_BUG_G1_no_more_than_so_many_messages_are_held_back() -> None:
    """Readers are answered one by one: many of them wait for one disk, and no more than the limit."""
    held = Held()
    for ticket in range(2 * HELD_MAX):
        held.add(Send("n1", ReadReply(1, 1, ticket, Code.NOT_LEADER, 0), 1))
    assert len(held) == HELD_MAX
    assert next(held.due(1)).message == ReadReply(1, 1, HELD_MAX, Code.NOT_LEADER, 0), "the oldest went"


def test_BUG_G2_tails_that_are_overwritten_fill_the_queue_of_a_disk_that_hangs_to_its_limit() -> None:
    """Each leader's tail is cut off by the next one and waits for the disk all the same."""
    script = Script(3, config=TIGHT)
    script["n1"].receive(script.now, "n0", Append(1, 1, 1, 1, 0, 0, 0, 0, [frame(1, 1)]))
    script.pump("n1")
    script.nodes["n1"].syncing = False
    answered = 0
    for term in range(2, 60):
        tail: list[Frame] = [frame(2, term, bytes(2_000))]
        leader = "n0" if term % 2 else "n2"
        script["n1"].receive(script.now, leader, Append(1, term, 1, 1, 1, 1, 0, 0, tail))
        script.pump("n1")
        answered += script["n1"].log.term_at(2) == term
        assert queued(script, "n1") <= TIGHT.unsynced_bytes_max + TIGHT.frame_bytes_max
    assert 10 < answered < 30 and script["n1"].leader == "n0" and script["n1"].term == 59
    script.mail.clear()
    script.nodes["n1"].syncing = True
    script.pump("n1")
    assert script["n1"].writes.unsynced_bytes == 0
    script["n1"].receive(script.now, "n0", Append(1, 59, 1, 2, 1, 1, 0, 0, [frame(2, 59)]))
    script.pump("n1")
    assert script["n1"].log.term_at(2) == 59 and script["n1"].log.durable_index == 2
    assert script.restart("n1").replica.log.term_at(2) == 59


def test_BUG_G2_what_a_follower_does_not_take_it_does_not_acknowledge() -> None:
    """It holds another leader's entry there, durably: the new one's frame is refused, not proven equal."""
    script = Script(3, config=TIGHT)
    first = frame(1, 1)
    old = frame(2, 1, chain=first.mark)
    script["n1"].receive(script.now, "n0", Append(1, 1, 1, 1, 0, 0, 0, 0, [first, old]))
    script.pump("n1")
    script.nodes["n1"].syncing = False
    for at in range(3, 30):
        script["n1"].receive(script.now, "n0", Append(1, 1, 1, at, at - 1, 1, 0, 0, [frame(at, 1, bytes(2_000))]))
        script.pump("n1")
    assert script["n1"].writes.disk_lags and script["n1"].log.durable_index == 2
    script["n1"].receive(script.now, "n2", Append(1, 3, 1, 1, 1, 1, 0, 0, [frame(2, 3), frame(3, 3)]))
    script.pump("n1")
    assert script["n1"].log.term_at(2) == 1 and script["n1"].following.verified == 1
    held = [send.message for send in script.nodes["n1"].held if send.peer == "n2"]
    assert [each.match for each in held if isinstance(each, AppendReply)] == [1]


def test_BUG_G2_a_follower_whose_disk_hangs_says_that_it_lives_and_takes_all_when_it_is_back() -> None:
    """What it does not take it does not acknowledge; it stays in contact and does not campaign."""
    script = Script(3, config=TIGHT)
    script.elect("n0")
    script.elapse(200)
    script.nodes["n1"].syncing = False
    for _ in range(200):
        script.propose("n0", bytes(1_000))
        script.elapse(50)
        assert queued(script, "n1") <= TIGHT.unsynced_bytes_max + TIGHT.frame_bytes_max
    assert script["n0"].role.name == "LEADER" and script["n1"].leader == "n0"
    assert script["n0"].commit_index == script["n0"].log.last_index
    script.nodes["n1"].syncing = True
    script.elapse(5_000)
    assert script["n1"].log.durable_index == script["n0"].log.last_index


def test_BUG_G2_a_leader_whose_own_disk_hangs_takes_so_much_and_no_more() -> None:
    """The others commit without it; what waits for its own disk has a limit all the same."""
    script = Script(3, config=TIGHT)
    script.elect("n0")
    script.nodes["n0"].syncing = False
    refused = 0
    for _ in range(100):
        try:
            script.propose("n0", bytes(1_000))
        except Busy:
            refused += 1
        script.settle()
    assert script["n0"].commit_index == script["n0"].log.last_index, "the others hold it"
    assert 0 < refused < 100 and queued(script, "n0") <= TIGHT.unsynced_bytes_max + 2_000
    script.nodes["n0"].syncing = True
    script.settle()
    script.propose("n0", b"again")


def test_BUG_G3_terms_that_rise_while_a_disk_hangs_share_a_write() -> None:
    """Votes are asked of it in ever higher terms; each is remembered, and they do not queue one by one."""
    script = Script(3)
    script.nodes["n1"].syncing = False
    for term in range(1, 4 * WRITES_MAX):
        script["n1"].receive(script.now, "n0" if term % 2 else "n2", Vote(1, term, 1, 0, 0, False, False))
        script.pump("n1")
    node = script.nodes["n1"]
    assert len(node.writes) <= WRITES_MAX and len(node.held) <= 8
    assert not [mail for mail in script.mail if mail.source == "n1"], "no vote is spoken of before it is durable"
    script.sync("n1")
    script.sync("n1")
    last = 4 * WRITES_MAX - 1
    assert script["n1"].term == last and script["n1"].writes.durable_token == script["n1"].writes.hard_token
    granted = [mail.message for mail in script.mail if mail.source == "n1" and isinstance(mail.message, VoteReply)]
    assert granted and granted[-1].term == last
    script.crash("n1")
    assert script.restart("n1").replica.voted_for == script["n1"].voted_for
    assert script["n1"].term == last
