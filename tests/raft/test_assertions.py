"""Assertions of raft's cores catch defects by themselves: one is planted in each module, and a run meets it, or a call.

``PLANTED`` says which text of a module is changed to what, and what goes through it: by itself a short simulated run,
whose properties (``require``) say nothing here. Without the change it ends well; with it, in an ``AssertionError`` of
raft. The functions that changed are exchanged where they stand, since the parts of a replica know each other.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from types import FunctionType, ModuleType
from typing import Any, cast

import attrs
import pytest

from benchmarks.structure import Tree, is_assertion
from raft import violation
from raft.bounds import INV_R39
from raft.clientwire import Op, Request, decode_request, encode_request
from raft.examples.dictionary import Dictionary, Put
from raft.examples.locks import Acquire, Locks
from raft.examples.queue import OpenSession, Pop, Push, Queue
from raft.explain import explain
from raft.forgotten import LIVES_MET, greets
from raft.frame import Kind, build
from raft.groups import DEFAULT_GROUP, Origin, write_origin
from raft.held import HELD_MAX, Held
from raft.hello import HelloRefusal, encode_greeting
from raft.identities import GUESTS_MAX
from raft.lives import Lives
from raft.membership import Desired, Member, Membership, next_step
from raft.messages import Append, HardState, Role, Send, VoteReply, Write
from raft.probes import unready
from raft.shadow import Ghost
from raft.sim import campaign
from raft.sim.disk import VirtualDisk, seeded
from raft.sim.tape import Tape
from raft.status import ElectionStatus, RefusalKind
from raft.storage.blocks import LocalKind, Position, encode_block, encode_local
from raft.storage.catalog import Catalog, Segment
from raft.storage.identity import format_directory
from raft.storage.inlining import InlinePolicy
from raft.storage.model import LogImage
from raft.storage.segment import SegmentStorage
from raft.storage.smallfile import write_small
from raft.wire import Decoder, encode
from tests.raft.alone import DLEDGER, NOW, Node
from tests.raft.statuses import make_status

SEEDS = 8


def a_simulated_run() -> None:
    for seed in range(1, SEEDS + 1):
        ended = campaign.run(Tape(seed), "swarm")
        if ended.failure is not None:
            raise Found(ended.failure)


class Found(AssertionError):
    """What a run ended with: ``AssertionError in FILE:FUNCTION``."""


def a_new_voter() -> None:
    assert next_step(Membership(("n0",), members={"n0": Member("a")}), Desired({"n0": "a", "n1": "b"}, {}), {},
                     frozenset({"n1"})).membership


def two_lives() -> None:
    lives = Lives()
    lives.begin(1)
    lives.begin(2)
    lives.unsaid()


def a_frame_of_two() -> None:
    assert build(kind=Kind.COMMANDS, group=1, term=1, first=1, payloads=[b"a", b"bc"], wall_ms=0, chain=0).payloads()


def a_long_refusal() -> None:
    assert encode_greeting(HelloRefusal(RefusalKind.OTHER, "no" * 4_000))


def a_cut_that_takes_nothing() -> None:
    catalog = Catalog()
    catalog.begin(Segment(1, "1", 1 << 20, 1, {}))
    catalog.frame(1, 1, 2, 1, int(Kind.COMMANDS), 7, 64)
    catalog.truncate(1, Position(5, 1, 7))


def a_cut_and_another_end() -> None:
    frames = [build(kind=Kind.COMMANDS, group=1, term=1, first=first, payloads=[b"a"], wall_ms=0, chain=0)
              for first in (1, 2)]
    image = LogImage().after(Write(1, 1, frames=frames))
    assert image.after(Write(2, 1, truncate_from=2, frames=frames[1:], hard_state=HardState(1))).last[0] == 2


def a_candidate_of_dledger() -> None:
    node = Node(config=DLEDGER)
    for _ in range(100):
        node.tick(1_000_000_000)


def a_hundred_words_held_back() -> None:
    held = Held()
    for peer in range(HELD_MAX + 1):
        held.add(Send(f"n{peer}", VoteReply(1, 1, 1, 0, False), after=peer))


def a_queue_emptied() -> None:
    queue = Queue()
    queue.apply(OpenSession())
    queue.apply(Push(1, 1, b"a"))
    queue.apply(Push(1, 2, b"b"))
    assert queue.apply(Pop(1, 3))["item"] == b"a"


def a_directory_opened_again() -> None:
    disk = VirtualDisk(seeded(1))
    format_directory(disk, "c", "n", bytes(16))
    for _ in range(2):
        storage = SegmentStorage(disk, "c", "n", segment_bytes=64 << 10, rng=Random(1))
        storage.open()
        storage.close()


def a_short_record() -> None:
    record, mark = encode_local(LocalKind.TRUNCATE, 1, b"")
    encode_block(first=False, owner=1, segment=1, sequence=1, synced=0, life=1, length=len(record), marks=[mark],
                 chain=0)


def a_message_in_two_parts() -> None:
    frame = build(kind=Kind.COMMANDS, group=1, term=1, first=1, payloads=[b"a"], wall_ms=0, chain=0)
    data, decoder = b"".join(encode(Append(1, 1, 1, 1, 0, 0, 0, 0, [frame]))), Decoder(1 << 20)
    assert [len(decoder.feed(part)) for part in (data[:-1], data[-1:])] == [0, 1]


def two_commands_at_once() -> None:
    block = encode_request(Request(1, Op.PROPOSE_MANY, commands=(b"a", b"bc")))[4:]
    assert decode_request(block, 2).commands == [b"a", b"bc"]


def a_former_candidate() -> None:
    assert explain(make_status(role=Role.FOLLOWER, leader=None, election=ElectionStatus(
        round=1, probe=True, asked_term=8, answers=())))


def a_peer_that_starts_again_and_again() -> None:
    node, source = (Ghost(name, bytes(16), Membership()) for name in ("n0", "n1"))
    source.replica = cast(Any, object())
    for source.life in range(1, LIVES_MET + 2):
        greets(node, source)


def a_guest_too_many() -> None:
    replica = Node().replica
    for number in range(GUESTS_MAX + 1):
        replica.identities.meet(NOW, f"guest{number}", bytes(16))


def a_directory_that_is_formatted() -> None:
    format_directory(VirtualDisk(seeded(1)), "c", "n", bytes(range(16)))


def a_small_file() -> None:
    write_small(VirtualDisk(seeded(1)), "note", b"QRxx", b"short")


@attrs.frozen
class Planted:
    """``old`` of ``module`` becomes ``new``; ``meet`` goes through it. ``noticed_by``: another module's assertion."""

    module: str
    old: str
    new: str
    meet: Callable[[], object] = a_simulated_run
    noticed_by: str = ""

    @property
    def core(self) -> str:
        """Whose assertion it is for."""
        return self.noticed_by or self.module


PLANTED = [
    Planted("raft.bounds", "max(0, live - segment_bytes)\n", "live - segment_bytes\n", lambda: INV_R39(0, 100, 0, 0)),
    Planted("raft.candidacy", "self._tally, self._round_deadline = None, NEVER\n        outcome",
            "self._round_deadline = NEVER\n        outcome"),
    Planted("raft.changes", "        if not self.free:\n            return\n        current", "        current"),
    Planted("raft.clientwire", "        start += length\n", "        start += length + 1\n", two_commands_at_once),
    Planted("raft.examples.dictionary", "self.version += 1", "pass", lambda: Dictionary().apply(Put("a", b"b"))),
    Planted("raft.examples.locks", '{"token": self.last_token, ', '{"token": self.last_token + 1, ',
            lambda: Locks().apply(Acquire("a", "me"))),
    Planted("raft.examples.queue", "len(command.item) + 1", "len(command.item)", a_queue_emptied),
    Planted("raft.explain", "election is not None and status.role is Role.CANDIDATE:", "election is not None:",
            a_former_candidate),
    Planted("raft.following", "            if decision.adopt_term > core.term:\n", "            if False:\n"),
    Planted("raft.forgotten", "del lives[:-LIVES_MET]", "pass", a_peer_that_starts_again_and_again),
    Planted("raft.frame", "            start = end\n", "            start = end + 1\n", a_frame_of_two),
    Planted("raft.groups", "return 1", "return 2",
            lambda: write_origin(VirtualDisk(seeded(1)), 1, Origin(DEFAULT_GROUP, Membership(())))),
    Planted("raft.held", "if len(sends) > HELD_MAX:", "if False:", a_hundred_words_held_back),
    Planted("raft.hello", "[:2_000]", "[:9_000]", a_long_refusal),
    Planted("raft.identities", "del self.met[guest]", "pass", a_guest_too_many),
    Planted("raft.invariants", "node.disk = standing\n            node.pending.clear()", "node.disk = standing"),
    Planted("raft.invariants", "if replica.role is Role.LEADER and frame.term", "if frame.term",
            noticed_by="raft.memberrules"),
    Planted("raft.leadership", "self.uncommitted_bytes -= uncommitted.popleft()[1]", "uncommitted.popleft()"),
    Planted("raft.lives", "[*self._own, self.now][-OWN_MAX:]", "[self.now, *self._own][-OWN_MAX:]", two_lives),
    Planted("raft.log", "self.durable_index = min(self.durable_index, last)", "pass"),
    Planted("raft.membership", "    if missing or any(", "    if any(", a_new_voter),
    Planted("raft.probes", "_told(known, UNREADY)", "_told(known, (*UNREADY, 'leaderless'))",
            lambda: unready([make_status()])),
    Planted("raft.progress", "self.inflight_bytes -= inflight.popleft()[1]", "inflight.popleft()"),
    Planted("raft.reads", "and leadership.own_term_committed:", ":"),
    Planted("raft.regaining", "self.deadline = core.now + core.silence_ns", "self.deadline = core.now"),
    Planted("raft.replica", "        if index <= self.commit_index:\n            return\n",
            "        if index == self.commit_index:\n            return\n"),
    Planted("raft.rules.dledger", "max(me.term, FIRST_TERM) + 1, me.last_term + 1)",
            "max(me.term, FIRST_TERM), me.last_term)", a_candidate_of_dledger),
    Planted("raft.rules.strict", "max(me.term, candidacy.known_term) + 1", "max(me.term, candidacy.known_term)"),
    Planted("raft.shadow", "        self.last = self.lasts[-1] if keep else self.base[0]\n", ""),
    Planted("raft.snapshots", "        log.snapshot = meta\n        log.note_end", "        log.note_end"),
    Planted("raft.standstill", "if core.log.durable_index < due or self", "if self"),
    Planted("raft.storage.blocks", "return head + _CRC.pack(mark) + body, mark", "return head + body, mark",
            a_short_record),
    Planted("raft.storage.catalog", "            if span.end.index <= end.index:\n                break\n", "",
            a_cut_that_takes_nothing),
    Planted("raft.storage.identity", '"incarnation": incarnation})', '"incarnation": incarnation[::-1]})',
            a_directory_that_is_formatted),
    Planted("raft.storage.inlining", "elif self._next_backoff > BACKOFF_WRITES:", "else:",
            lambda: InlinePolicy(1.0).took(0)),
    Planted("raft.storage.memory", "del self.frames[at:], self.firsts[at:]",
            "del self.frames[at + 1:], self.firsts[at + 1:]"),
    Planted("raft.storage.model", "if f.first < write.truncate_from", "if f.first <= write.truncate_from",
            a_cut_and_another_end),
    Planted("raft.storage.recovery", "recovery.catalog.begin(segment)", "pass", a_directory_opened_again),
    Planted("raft.storage.smallfile", "_head(magic, body) + body]", "_head(magic, body)]", a_small_file),
    Planted("raft.tracker", "for peer in core.membership.everyone if peer != core.node_id}",
            "for peer in core.membership.everyone}"),
    Planted("raft.transfer", "if core.now >= self.deadline:", "if core.now > 0:"),
    Planted("raft.voting", "        if decision.adopt_term > core.term:\n", "        if False:\n"),
    Planted("raft.wire", "self._due = HEADER_BYTES + size", "self._due = HEADER_BYTES", a_message_in_two_parts),
    Planted("raft.writes", "self.unsynced_bytes -= size", "self.unsynced_bytes -= 2 * size"),
]


def functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """All that the module defines, with the methods of its classes, by their qualified names."""
    todo = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    while todo:
        value = todo.pop()
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(value, FunctionType):
            yield value.__qualname__, value
        elif isinstance(value, type):
            todo += vars(value).values()


def plant(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchange the code of each function that the change touches."""
    module = import_module(planted.module)
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(planted.old) == 1, f"the text to change occurs {source.count(planted.old)} times"
    changed = ModuleType(module.__name__)
    with monkeypatch.context() as during:
        during.setitem(sys.modules, module.__name__, changed)  # attrs looks classes up there
        exec(compile(source.replace(planted.old, planted.new), module.__file__, "exec"), changed.__dict__)
    here = dict(functions(module))
    for name, made in functions(changed):
        if name in here and made.__code__.co_freevars == here[name].__code__.co_freevars and (
                made.__code__.co_code, made.__code__.co_consts) != (
                here[name].__code__.co_code, here[name].__code__.co_consts):
            monkeypatch.setattr(here[name], "__code__", made.__code__)


def says_nothing(holds: bool, id: str, message: str, *facts: object) -> None:  # noqa: A002  as ``require`` has it
    """In place of ``require``."""


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.core)
def test_a_planted_defect_ends_in_an_assertion(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(violation.require, "__code__", says_nothing.__code__)
    plant(planted, monkeypatch)
    with pytest.raises(AssertionError) as caught:
        planted.meet()
    if isinstance(caught.value, Found):
        assert str(caught.value).startswith("AssertionError in "), caught.value
    else:
        raised_in = traceback.extract_tb(caught.value.__traceback__)[-1].filename
        assert "raft" in Path(raised_in).parts[-3:] and "tests" not in Path(raised_in).parts, "no assertion of raft"


@pytest.mark.parametrize("meet", dict.fromkeys(each.meet for each in PLANTED))
def test_without_the_defect_it_ends_well(meet: Callable[[], object]) -> None:
    meet()


def test_each_core_that_asserts_has_a_planted_defect() -> None:
    cores = [each for each in Tree(Path(__file__).parents[2]).of("raft") if "core" in each.kinds]
    asserting = {each.name for each in cores if any(map(is_assertion, each.nodes))}
    assert {planted.core for planted in PLANTED} == asserting
