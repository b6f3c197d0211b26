"""A process that is killed and started again in the same term meets what was meant for its earlier life (table Q)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import raft
from harness.simulation.worlds.nodes import Counter
from raft.following import Following
from raft.messages import Append, Code, ReadReply, ReadRequest
from raft.replica import LIFE_BITS, Replica
from raft.sim.campaign import run
from raft.sim.tape import Tape
from raft.trace import Dropped
from raft.wire import Decoder, encode
from tests.raft.script import Mail, Script, led

PEERS = {"n0": "127.0.0.1:0"}


def asked(script: Script, name: str) -> list[ReadRequest]:
    return [mail.message for mail in script.mail if mail.source == name and isinstance(mail.message, ReadRequest)]


def test_BUG_Q15_an_answer_to_an_earlier_life_answers_no_read_of_this_one() -> None:
    """Own: each life counted its reads from 1, so a late answer let a later read see less than was acknowledged.

    Guards that each life counts its questions from a point of its own.
    """
    script = led()
    late: list[Mail] = []

    def hold(mail: Mail) -> bool:
        if isinstance(mail.message, ReadReply):
            late.append(mail)
        return not isinstance(mail.message, ReadReply)

    script.filter = hold
    first = script.read("n2")
    script.settle()
    assert late and isinstance(late[0].message, ReadReply) and late[0].message.code == Code.SUCCESS

    script.filter = None
    script.crash("n2")
    script.restart("n2")
    script.cut("n2")
    script.propose("n0", b"new")
    script.settle()
    assert script.nodes["n0"].applied[-1] == b"new", "acknowledged by n0 and n1"
    script.heal()
    script.filter = lambda mail: not (
        isinstance(mail.message, ReadRequest)
        or (mail.target == "n2" and isinstance(mail.message, Append) and mail.message.frames))
    script.elapse(script["n0"].rules.heartbeat_ns // 1_000_000)
    assert script["n2"].leader == "n0" and script["n2"].term == late[0].message.term
    again = script.read("n2")
    assert again == first == 1, "callers' tickets begin anew with each life"
    script.filter = None
    script.deliver(late[0])
    assert script.outcome("n2", again) == "open"
    assert isinstance(script.nodes["n2"].traces[-1], Dropped)


def test_BUG_Q15_each_question_of_a_life_has_a_number_of_its_own() -> None:
    """Own: the same, within a life. Guards that questions are counted, and that each caller gets his own answer."""
    script = led()
    script.filter = lambda mail: not isinstance(mail.message, ReadRequest)
    tickets = [script.read("n2") for _ in range(3)]
    numbers = [question.ticket for question in asked(script, "n2")]
    assert len(set(numbers)) == 3 and min(numbers) > script["n2"].life
    script.settle()
    replica = script["n2"]
    replica.receive(script.now, "n0", ReadReply(1, replica.term, numbers[1], Code.SUCCESS, replica.commit_index))
    script.pump("n2")
    assert [script.outcome("n2", ticket) for ticket in tickets] == ["open", "done", "open"]


async def test_BUG_Q15_every_opening_of_a_group_is_a_life_of_its_own(tmp_path: Path) -> None:
    """Own: the same, in the shell. Guards that the host draws at least 48 bits for each,"""
    lives: list[int] = []
    for _ in range(3):
        async with raft.open_node(
            "n0", data_dir=tmp_path / "alone", peers=PEERS, state_machine=Counter(), bootstrap=True,
            listen=PEERS["n0"],
        ) as node:
            lives.append(node._driver.replica.life)
    async with raft.open_host(
        tmp_path / "host", node_id="n0", listen=PEERS["n0"], create=True, rng=Random(1),
    ) as host:
        for name in ("a", "b"):
            group = await host.open_group(name, state_machine=Counter(), peers=PEERS, bootstrap=True)
            lives.append(group._driver.replica.life)
    assert len(set(lives)) == len(lives), lives
    assert 48 <= LIFE_BITS <= 62, "fewer meet each other too soon, more do not fit the wire once counted from"
    assert max(lives) >> (LIFE_BITS - 8), "all of the bits are drawn"


def test_BUG_Q15_the_wire_carries_what_a_life_counts_from_and_what_older_peers_send() -> None:
    """Own: both ends of a read may be of an older version. Guards that a number is neither narrowed nor judged."""
    largest = (1 << LIFE_BITS) + (1 << 40)
    for number in (1, 7, largest):
        for message in (ReadRequest(1, 3, number), ReadReply(1, 3, number, Code.SUCCESS, 9)):
            assert Decoder(1_000).feed(b"".join(encode(message))) == [message]
    script = led()
    script["n0"].receive(script.now, "n1", ReadRequest(1, script["n0"].term, 1))  # as an older follower asks
    script.pump("n0")
    replies: list[ReadReply] = []

    def note(mail: Mail) -> bool:
        if isinstance(mail.message, ReadReply):
            replies.append(mail.message)
        return True

    script.filter = note
    script.settle()
    assert [(reply.ticket, reply.code) for reply in replies] == [(1, Code.SUCCESS)]


def counted_from_one(self: Following, core: Replica) -> None:
    """Mutant: as before, each life counts from 1."""
    BEGIN(self, core)
    self._asked = 0


BEGIN = Following.__init__


def test_BUG_Q15_the_simulation_sees_lives_that_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own: one counter for all nodes hid it. Guards that simulated lives count from 1, and that some bounce."""
    assert run(Tape(1), "bounce", until_ns=2_000_000_000).failure is None
    monkeypatch.setattr(Following, "__init__", counted_from_one)
    result = run(Tape(1), "bounce")
    assert result.failure == "INV_R20" and result.applied["late answer"]
