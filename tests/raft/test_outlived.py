"""An older copy of a directory: who met a later life of it tells it, and until it holds again what that life had
acknowledged it neither votes nor counts, also when the leader of the time is lost.
"""

from __future__ import annotations

import errno
import shutil
from contextlib import AsyncExitStack
from copy import deepcopy
from pathlib import Path

import attrs
import cbor2
import pytest
import trio
import trio.testing

from harness.simulation.worlds.nodes import THREE, three
from harness.simulation.worlds.nodes import network as node_network
from raft.config import NEVER, Config, DLedgerTimers, Rules
from raft.errors import MalformedMessage
from raft.hello import Hello, decode_greeting, encode_greeting
from raft.identities import GUESTS_MAX
from raft.lives import (
    LIFE_BITS,
    MET_MAX,
    NONE_MET,
    OWN_MAX,
    PEERS_MAX,
    RANDOM_BITS,
    TOLD_MAX,
    Lives,
    Met,
    take_met,
)
from raft.membership import Membership
from raft.messages import (
    UNKNOWN_TERM,
    WHOLE,
    Code,
    Lapse,
    ReadReply,
    ReadRequest,
    Role,
    Vote,
    VoteReply,
    VoteResult,
    Write,
)
from raft.replica import Replica
from raft.shadow import Copy
from raft.sim import Cluster, InvariantViolation
from raft.sim.disk import SimulatedCrash, VirtualDisk, seeded
from raft.sim.disks import MemoryDisk
from raft.storage.identity import format_directory
from raft.storage.lives import NAME, begin_life, read_lives, write_lives
from raft.storage.mark import NAME as MARK
from raft.storage.memory import MemoryStorage
from raft.trace import Event, Outlived, Regained
from tests.raft.script import Script, led
from tests.raft.sim.machines import Counter
from tests.raft.storage.test_mark import formatted, opened, written
from tests.raft.test_hello import MINE, sealed
from tests.raft.test_host import Three, n
from tests.raft.test_strangers import closed
from tests.raft.transports import network, settle

CONFIGS = {
    "strict": Config(),
    "dledger": Config(rules=Rules.DLEDGER, dledger=DLedgerTimers(
        heart_beat_time_interval_ms=100, min_vote_interval_ms=60, max_vote_interval_ms=200, vote_wait_ms=200)),
}
LIFE, LATER = 7 << RANDOM_BITS | 1, 8 << RANDOM_BITS | 2
ME = b"i" * 16


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]


def write(script: Script, count: int = 3) -> None:
    for _ in range(count):
        script.propose("n0", b"w")
        script.settle()


def tell(script: Script, name: str, *lives: int, peer: str = "n2") -> bool:
    news = script[name].regaining.outlived(script.now, peer, lives)
    if news:
        script.nodes[name].held.clear()
    script.pump(name)
    return news


def lapses(replica: Replica) -> bool:
    return replica.lapse is not None


def older_copy(script: Script) -> None:
    """n0 and n1 alone hold what is committed; n0 is lost, and n1 comes back as it was before."""
    copy = deepcopy(script.nodes["n1"].storage)
    script.cut("n2")
    write(script)
    script.crash("n0")
    script.crash("n1")
    script.heal()
    script.start("n1", copy)


# --- the core ------------------------------------------------------------------------------------------------------


def test_BUG_F15_an_older_copy_that_a_peer_tells_of_elects_nobody_without_what_is_lost(config: Config) -> None:
    """Own: two that live would elect without what only the copied one and the lost leader had acknowledged. Guards that
    it lapses when a peer met a later life."""
    script = led(config=config)
    older_copy(script)
    committed = script["n0"].commit_index
    assert script["n1"].log.last_index < committed
    assert tell(script, "n1", LIFE)
    script.elapse(20_000)
    assert script.leader() is None
    assert script["n1"].regaining.core.lapse == Lapse(script["n1"].log.last_index, UNKNOWN_TERM, (LIFE,))
    script.restart("n0")
    script.elapse(20_000)
    leader = script.leader()
    assert leader is not None and leader.log.last_index >= committed
    assert script["n1"].lapse is None and script["n1"].log.durable_index == leader.log.last_index


def test_BUG_F15_without_the_peers_word_it_is_forgotten() -> None:
    """The loss that none can know of: what the test above would do without its guard."""
    script = led()
    older_copy(script)
    committed = script["n0"].commit_index
    script.elapse(20_000)
    leader = script.leader()
    assert leader is not None
    assert leader.log.term_at(committed) != script["n0"].log.term_at(committed)


def test_BUG_F15_a_leader_that_is_told_leads_no_more(config: Config) -> None:
    script = led(config=config)
    write(script)
    assert tell(script, "n0", LIFE)
    assert script["n0"].role is Role.FOLLOWER and not script["n0"].campaign.allowed
    script.elapse(10_000)
    leader = script.leader()
    assert leader is not None and leader.node_id != "n0" and script["n0"].lapse is None


def test_BUG_F15_a_vote_that_waits_for_the_disk_does_not_leave_any_more() -> None:
    """It may be the directory's second one in that term."""
    script = led()
    node = script.nodes["n1"]
    node.syncing = False
    script.crash("n0")
    while not len(node.held):
        script.elapse(10)
    assert tell(script, "n1", LIFE)
    script.mail.clear()
    node.syncing = True
    script.sync("n1")
    assert not [mail for mail in script.mail
                if isinstance(mail.message, VoteReply) and mail.message.result == VoteResult.ACCEPT]


def test_BUG_F16_how_far_its_log_reaches_does_not_end_such_a_lapse() -> None:
    """Own: nobody knows how far the later life went. Guards that a leader must say what is committed."""
    script = led()
    script.filter = lambda mail: not isinstance(mail.message, ReadReply)
    assert tell(script, "n1", LIFE)
    write(script)
    script.elapse(1_000)
    assert script["n1"].lapse is not None and script["n1"].log.durable_index == script["n0"].log.last_index
    script.filter = None
    script.elapse(5_000)
    assert script["n1"].lapse is None


def test_BUG_F17_a_life_that_is_settled_is_told_in_vain_also_after_a_restart() -> None:
    """Own: peers go on telling it. Guards that the group remembers it, where it says that the lapse is over."""
    script = led()
    assert tell(script, "n1", LIFE)
    assert not tell(script, "n1", LIFE)
    script.elapse(2_000)
    assert script["n1"].lapse is None and not tell(script, "n1", LIFE)
    script.crash("n1")
    script.restart("n1")
    assert not tell(script, "n1", LIFE)
    assert tell(script, "n1", LIFE, LATER) and script["n1"].regaining.told == (LIFE, LATER)


def test_BUG_F17_a_lapse_and_its_life_reach_the_disk_together() -> None:
    script = led()
    script.nodes["n1"].syncing = False
    assert tell(script, "n1", LIFE)
    script.crash("n1")
    script.restart("n1")
    assert (script["n1"].lapse, script["n1"].regaining.told) == (None, ())
    script.cut("n1")
    assert tell(script, "n1", LIFE)
    script.crash("n1")
    script.restart("n1")
    lapse = script["n1"].lapse
    assert lapse is not None and lapse.told == script["n1"].regaining.told == (LIFE,)


def test_a_loss_that_was_told_is_accepted_on_purpose() -> None:
    script = led(1)
    assert tell(script, "n0", LIFE)
    script.elapse(5_000)
    assert script.leader() is None
    script["n0"].regaining.accept_loss(script.now)
    script.pump("n0")
    script.elapse(5_000)
    assert script["n0"].role is Role.LEADER and not tell(script, "n0", LIFE)


def questions(script: Script, name: str) -> list[ReadRequest]:
    return [mail.message for mail in script.mail if mail.source == name and isinstance(mail.message, ReadRequest)]


def test_the_leader_is_asked_again_until_it_says_what_is_committed() -> None:
    """Its answer counts once, to this question, from this leader, in this term; a refusal is none."""
    script = led()
    script.elapse(1_000)
    script.filter = lambda mail: not isinstance(mail.message, ReadReply)
    replica = script["n1"]
    regaining = replica.regaining
    assert regaining.deadline == NEVER
    tell(script, "n1", LIFE)
    (asked,) = questions(script, "n1")
    due, held = regaining.deadline, replica.log.durable_index
    assert due == script.now + replica.silence_ns
    script.now = due - 1
    regaining.core.now = due - 1
    regaining.tick()
    assert questions(script, "n1") == [asked]
    regaining.core.now = due
    regaining.tick()
    script.pump("n1")
    first, second = questions(script, "n1")
    assert first == asked and second.ticket > asked.ticket and regaining.deadline == due + replica.silence_ns
    good = ReadReply(1, replica.term, second.ticket, Code.SUCCESS, held + 1)
    for peer, reply in (("n0", attrs.evolve(good, ticket=asked.ticket)), ("n2", good),
                        ("n0", attrs.evolve(good, term=replica.term - 1))):
        assert not regaining.answered(peer, reply)
    assert regaining.answered("n0", attrs.evolve(good, code=Code.NOT_LEADER, index=0))
    assert lapses(replica) and regaining.deadline == due + replica.silence_ns, "it is asked again"
    assert regaining.answered("n0", good)
    assert lapses(replica) and regaining.deadline == NEVER, "more is committed than it holds"
    assert regaining.answered("n0", attrs.evolve(good, index=held)) and not lapses(replica)


def test_an_answer_before_any_question_is_none() -> None:
    replica = Script(3)["n1"]
    assert not replica.regaining.answered("n0", ReadReply(1, replica.term, 0, Code.SUCCESS, 9))


def test_no_question_of_an_earlier_leader_is_answered_by_a_later_one() -> None:
    script = led()
    tell(script, "n1", LIFE)
    replica = script["n1"]
    replica.regaining.reset()
    script.cut("n1")
    replica.leader = None
    replica.regaining.reset()
    assert replica.regaining.deadline == NEVER
    assert not replica.regaining.answered("n0", ReadReply(1, replica.term, 0, Code.SUCCESS, 0))
    replica.regaining.look()
    assert lapses(replica), "nobody says what is committed"


def test_a_node_that_is_faulted_takes_no_word() -> None:
    script = led()
    script["n1"].faulted = "planted"
    assert not script["n1"].regaining.outlived(script.now, "n2", (LIFE,))
    assert script["n1"].regaining.told == () and script["n1"].lapse is None


@pytest.mark.parametrize(("field", "value"), [
    ("leader", None), ("role", Role.CANDIDATE), ("installing", 9)])
def test_a_lapse_ends_only_beside_a_leader_and_over_a_whole_log(field: str, value: object) -> None:
    script = led()
    write(script)
    replica = script["n1"]
    held, usual = replica.log.durable_index, getattr(replica, field)
    replica.lapse = Lapse(held, replica.log.term_at(held))
    setattr(replica, field, value)
    replica.regaining.look()
    assert lapses(replica)
    setattr(replica, field, usual)
    replica.regaining.look()
    assert not lapses(replica)
    replica.regaining.look()


def test_a_loss_is_accepted_of_a_node_that_has_one_and_works() -> None:
    script = led()
    replica = script["n1"]
    replica.regaining.accept_loss(script.now)
    assert tell(script, "n1", LIFE)
    replica.faulted = "planted"
    replica.regaining.accept_loss(script.now)
    assert lapses(replica)
    replica.faulted = None
    script.cut("n1")
    script.elapse(5_000)
    replica.regaining.accept_loss(script.now)
    assert not lapses(replica)
    assert replica.election_deadline == script.now + replica.silence_ns, "it waits before it asks for votes"


def test_the_words_of_all_that_became_members_are_taken_at_once() -> None:
    script = led()
    regaining = script["n1"].regaining
    regaining.words = {"n2": (LIFE,), "x": (9,), "n0": (LATER,)}
    assert regaining.believe_members(script.now)
    assert (regaining.told, regaining.words) == ((LIFE, LATER), {"x": (9,)})
    assert not regaining.believe_members(script.now)
    regaining.words["n2"] = (LATER + 1,)
    assert regaining.believe_members(script.now), "one is enough"


def test_a_copy_without_entries_is_an_older_copy_too() -> None:
    """0 would say that nothing is lost."""
    script = Script(3)
    assert tell(script, "n1", LIFE)
    assert script["n1"].lapse == Lapse(1, UNKNOWN_TERM, (LIFE,))


def test_lives_that_were_told_are_bounded() -> None:
    script = led()
    for number in range(1, 3 * TOLD_MAX):
        assert tell(script, "n1", number << RANDOM_BITS)
    assert len(script["n1"].regaining.told) == TOLD_MAX


def test_a_lapse_of_unknown_reach_is_told_in_a_reply() -> None:
    """Its term is the largest that the wire takes."""
    from raft.wire import Decoder, encode

    script = led()
    script.filter = lambda mail: not isinstance(mail.message, ReadReply)
    assert tell(script, "n1", LIFE)
    reply = script["n1"].following._acknowledgement(0)
    assert Decoder(1 << 20).feed(b"".join(encode(reply))) == [reply] and reply.hint_term == UNKNOWN_TERM


# --- whose word counts -------------------------------------------------------------------------------------------


def newcomer(script: Script) -> None:
    script.start("x", MemoryStorage(), Membership())
    script["x"].following.members_only = True


def test_BUG_F23_a_node_that_is_no_member_takes_nobodys_vote_away() -> None:
    """Own: whoever greeted while there was no leader made a node lapse, on its disk. Guards that it must be a member
    where strangers are kept out."""
    script = closed(led())
    assert not tell(script, "n1", LIFE, peer="x")
    script.elapse(1_000)
    assert script["n1"].lapse is None and script["n1"].regaining.told == ()
    assert tell(script, "n1", LIFE, peer="n2")


@pytest.mark.parametrize("name", ["n0", "n1"])
def test_BUG_F23_what_a_node_said_counts_once_it_is_a_member(name: str) -> None:
    """This node's membership may be the older one."""
    script = closed(led())
    newcomer(script)
    assert not tell(script, name, LIFE, peer="x")
    script.reconfigure("n0", ["n0", "n1", "n2", "x"])
    for _ in range(100):
        script.elapse(50)
    lapses = [event for event in script.nodes[name].traces if isinstance(event, Outlived)]
    assert [event.peer for event in lapses] == ["x"] and script[name].regaining.told == (LIFE,)
    assert not script[name].regaining.words


def test_BUG_F23_a_candidate_is_refused_the_vote_that_it_says_was_lost() -> None:
    """Own: it may be a member by the later membership, and is voted for as one."""
    script = closed(led())
    asks = Vote(1, 9, 1, 1_000, 8, transfer=True)
    script.cut("n0")
    assert not tell(script, "n1", LIFE, peer="x")
    for name, result in (("n1", VoteResult.UNKNOWN), ("n2", VoteResult.ACCEPT)):
        script[name].receive(script.now, "x", asks)
        script.pump(name)
        (reply,) = (mail.message for mail in script.mail if (mail.source, mail.target) == (name, "x"))
        assert isinstance(reply, VoteReply) and reply.result == result


def test_words_of_nodes_that_are_no_members_are_bounded() -> None:
    script = closed(led())
    for number in range(GUESTS_MAX + 9):
        assert not tell(script, "n1", LIFE, peer=f"guest {number}")
    assert len(script["n1"].regaining.words) == GUESTS_MAX


# --- lives ---------------------------------------------------------------------------------------------------------


def lived(*chances: int) -> Lives:
    lives = Lives()
    for chance in chances:
        lives.begin(chance)
    return lives


def test_BUG_F18_a_copy_counts_on_as_its_original_does_and_is_told_apart() -> None:
    """Own: both go on with the same number. Guards the random half of a life."""
    original, copy = lived(1, 2), lived(1, 3)
    peer = Lives()
    assert original.now >> RANDOM_BITS == copy.now >> RANDOM_BITS == 2
    assert peer.meet("n1", ME, original.now) and not peer.meet("n1", ME, original.now)
    assert original.missing(ME, peer.met("n1")) == ()
    assert copy.missing(ME, peer.met("n1")) == (original.now,)
    copy.begin(4)
    assert peer.meet("n1", ME, copy.now)
    assert copy.missing(ME, peer.met("n1")) == (original.now,)  # also when it has opened more often


def test_a_new_directory_is_not_asked_after_the_lives_of_the_old_one() -> None:
    peer, wiped = Lives(), lived(9)
    peer.meet("n1", b"o" * 16, LIFE)
    assert wiped.missing(ME, peer.met("n1")) == ()
    assert peer.meet("n1", ME, wiped.now) and peer.met("n1") == Met(ME, (wiped.now,))


def test_a_peer_that_says_no_life_is_no_life() -> None:
    peer = Lives()
    assert not peer.meet("n1", ME, 0) and peer.met("n1") == NONE_MET


def test_what_is_remembered_of_lives_is_bounded_and_the_newest() -> None:
    peer, node = Lives(), Lives()
    first = 0
    for number in range(OWN_MAX + 5):
        node.begin(number)
        first = first or node.now
        peer.meet("n1", ME, node.now)
    assert len(peer.met("n1").lives) == MET_MAX and peer.met("n1").lives[-1] == node.now
    assert len(node.encode()) < 16 << 10
    assert node.missing(ME, Met(ME, (first,))) == ()  # too long ago to say
    for number in range(2_000):
        peer.meet(f"guest {number}", ME, LIFE)
        peer.forget_guests("n1".__eq__)
    assert len(Lives.decode(peer.encode())._met) <= 1_024 and peer.met("n1").lives
    assert list(Lives.decode(peer.encode("n1".__eq__))._met) == ["n1"]


def test_a_lifes_number_has_its_place_on_disk_and_on_the_wire() -> None:
    """Directories and peers of other builds count as this one does."""
    assert (RANDOM_BITS, LIFE_BITS) == (40, 63)
    assert (Lives().now, lived(5).now) == (0, (1 << 40) + 5)


def test_a_life_that_is_taken_back_was_none() -> None:
    lives = lived(1, 2)
    before = lives.encode()
    lives.begin(3)
    lives.unsaid()
    assert (lives.now, lives.encode()) == (0, before)


def test_openings_are_counted_until_their_bits_are_used_up_and_then_anew() -> None:
    lives = Lives([(1 << LIFE_BITS) - 1])
    lives.begin(5)
    assert lives.now == 5
    lives = Lives([3 << RANDOM_BITS | 9, 2 << RANDOM_BITS])
    lives.begin(5)
    assert lives.now == 4 << RANDOM_BITS | 5


@pytest.mark.parametrize(("life", "missing"), [(2 << RANDOM_BITS | 9, False), (3 << RANDOM_BITS, True),
                                               (3 << RANDOM_BITS | 5, False), (9 << RANDOM_BITS, True)])
def test_a_life_is_missed_from_the_oldest_opening_on_that_is_remembered(life: int, missing: bool) -> None:
    lives = Lives([3 << RANDOM_BITS | 5, 4 << RANDOM_BITS | 5])
    assert lives.missing(ME, Met(ME, (life,))) == (life,) * missing
    assert Lives().missing(ME, Met(ME, (life,))) == (life,), "it remembers none"
    assert lives.missing(b"o" * 16, Met(ME, (life,))) == ()


def test_a_peer_is_forgotten_when_there_are_too_many_and_a_member_last() -> None:
    lives = Lives()
    for number in range(PEERS_MAX):
        lives.meet(f"n{number}", ME, LIFE)
        lives.forget_guests("n0".__eq__)
    assert lives.met("n1").lives and lives.meet("guest", ME, LIFE)
    lives.forget_guests("n0".__eq__)
    assert lives.met("n1") == NONE_MET and lives.met("n0").lives and lives.met("n2").lives
    lives.meet("more", ME, LIFE)
    lives.forget_guests(bool)
    assert lives.met("n0") == NONE_MET and lives.met("n2").lives, "all are members: the one that was met first"


def test_what_a_file_keeps_of_lives_is_read_again() -> None:
    lives, largest = lived(*range(OWN_MAX + 1)), (1 << LIFE_BITS) - 1
    lives.meet("n1", ME, largest)
    lives.meet("n0", ME, 1)
    own, met = cbor2.loads(lives.encode())
    assert (len(own), own[-1], met) == (OWN_MAX, lives.now, {"n0": [ME, [1]], "n1": [ME, [largest]]})
    assert Lives.decode(lives.encode()).encode() == lives.encode()
    assert take_met([ME, list(range(1, MET_MAX + 2))]) == Met(ME, tuple(range(2, MET_MAX + 2))), "the newest"


@pytest.mark.parametrize("fields", [
    (ME, [1]), [ME], [ME, [1], [2]], ["i", [1]], [ME, (1,)], [ME, [0]], [ME, [-1]], [ME, [1 << LIFE_BITS]],
    [ME, [True]], [ME, ["1"]]], ids=repr)
def test_what_is_no_list_of_lives_is_refused(fields: object) -> None:
    with pytest.raises(ValueError, match=r"lives that were met|a life is a number"):
        take_met(fields)


# --- the file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", range(1, 12))
def test_BUG_F19_a_life_is_on_disk_before_anybody_hears_of_it(crash: int) -> None:
    """Own: a life that is told and then forgotten looks like another directory's. Asked by a crash in every step."""
    begun = 0
    for seed in range(12):
        disk = VirtualDisk(seeded(seed))
        format_directory(disk, "c", "n0", ME)
        first = begin_life(disk, 1)
        first.meet("n1", ME, LIFE)
        assert write_lives(disk, first.encode())
        disk.crash_at(disk.operations + crash)
        second = None
        try:
            second = begin_life(disk, 2)
        except SimulatedCrash:
            pass
        else:
            disk.crash()
        disk.restart()
        found = read_lives(disk)
        assert found.missing(ME, Met(ME, (first.now,))) == () and found.met("n1").lives == (LIFE,)
        if second is not None:
            begun += 1
            assert found.missing(ME, Met(ME, (second.now,))) == ()
    assert begun == 0 or crash > 5, "every step was crashed in"


def test_a_life_that_finds_no_room_is_not_said() -> None:
    disk = formatted()
    before = begin_life(disk, 1)
    disk.fail("write", errno.ENOSPC)
    assert begin_life(disk, 2).now == 0
    assert begin_life(disk, 3).now >> RANDOM_BITS == 2
    assert read_lives(disk).missing(ME, Met(ME, (before.now,))) == ()


def test_a_file_that_cannot_be_read_says_nothing() -> None:
    disk = formatted()
    first = begin_life(disk, 1)
    disk.rot(NAME, 10, 0x20)
    assert read_lives(disk).encode() == Lives().encode()
    assert begin_life(disk, 2).missing(ME, Met(ME, (first.now,))) == (first.now,)  # so it lapses, and regains
    for body in (b"", b"\x80", cbor2.dumps([[0], {}]), cbor2.dumps([[1], []]), cbor2.dumps([[1], {"a": [b"", "x"]}]),
                 cbor2.dumps([[1], {"a": [1, []]}]), cbor2.dumps([[1 << 63], {}])):
        with pytest.raises(MalformedMessage):
            Lives.decode(body)


def test_BUG_F20_the_mark_keeps_the_lives_that_a_group_was_told_of() -> None:
    """Own: in the sector of the lapse, also when that is over. Guards how many there are, behind the vote."""
    disk = formatted()
    storage = written(disk)
    storage.write([Write(9, 1, lapse=Lapse(3, UNKNOWN_TERM, (LIFE, LATER)))])
    storage.sync()
    disk.kill()
    storage, found = opened(disk)
    assert (found.lapse, found.told) == (Lapse(3, UNKNOWN_TERM, (LIFE, LATER)), (LIFE, LATER))
    storage.write([Write(1, 1, lapse=attrs.evolve(WHOLE, told=(LIFE, LATER)))])
    storage.sync()
    disk.crash()
    disk.restart()
    storage, found = opened(disk)
    assert (found.lapse, found.told) == (None, (LIFE, LATER))
    disk.kill()
    disk.rot(MARK, 8 + 72 + 2 + 4 + 3)  # behind the vote "n1"
    assert opened(disk)[1].told == ()


# --- the hello -----------------------------------------------------------------------------------------------------


def test_a_hello_says_its_life_and_those_that_were_met() -> None:
    hello = attrs.evolve(MINE, life=LIFE, met=Met(ME, (LIFE, LATER)))
    assert decode_greeting(encode_greeting(hello)) == (hello, len(encode_greeting(hello)))


def test_a_hello_of_a_build_that_knows_no_lives_says_none() -> None:
    fields = ["c", "n1", b"1" * 16, 1, "strict", "a:1", ""]
    for more in ([], [400], [400, 1_000], [400, 1_000, 5]):
        found = decode_greeting(sealed(1, cbor2.dumps([*fields, *more])))
        assert found is not None and isinstance(found[0], Hello)
        assert (found[0].life, found[0].met) == (5 if len(more) == 3 else 0, NONE_MET)


@pytest.mark.parametrize("more", [[-1], ["5"], [1 << 63], [5, 5], [5, [b""]], [5, [1, []]], [5, [b"", [0]]],
                                  [5, [b"", ["x"]]], [5, [b"", 3]]])
def test_lives_in_a_hello_are_numbers(more: list[object]) -> None:
    with pytest.raises(MalformedMessage):
        decode_greeting(sealed(1, cbor2.dumps(["c", "n1", b"1" * 16, 1, "strict", "a:1", "", 400, 1_000, *more])))


async def test_BUG_F15_each_end_tells_the_other_which_of_its_lives_it_met(
    autojump_clock: trio.testing.MockClock
) -> None:
    async with network() as net:
        dialled = await net.start("n1", life=LATER)
        dialled.met["n0"] = Met(b"0" * 16, (1, 2))
        dialler = await net.start("n0", life=LIFE)
        dialler.met["n1"] = Met(b"1" * 16, (3,))
        dialler.transport.set_peers(["n1"])
        await settle()
        (first, at_dialled), (second, at_dialler) = dialled.greeted[0], dialler.greeted[0]
        assert (first, at_dialled.life, at_dialled.met) == ("n0", LIFE, Met(b"1" * 16, (3,)))
        assert (second, at_dialler.life, at_dialler.met) == ("n1", LATER, Met(b"0" * 16, (1, 2)))


async def test_BUG_F15_what_a_real_node_holds_back_is_dropped_when_it_is_told(
    autojump_clock: trio.testing.MockClock
) -> None:
    async with node_network() as net:
        leader = await three(net)
        voter = next(node for node in net.nodes.values() if node is not leader)
        candidate = next(name for name in THREE if name not in (leader.node_id, voter.node_id))
        net.isolate(leader.node_id)
        net.record = True
        net.disks[voter.node_id].stalled = True
        voter._driver.receive(candidate, Vote(1, 9, 1, 1_000, 8, transfer=True))
        voter._driver.pump()
        assert voter.status().voted_for == candidate and voter._driver.outlived(candidate, (LIFE,))
        net.disks[voter.node_id].stalled = False
        net.disks[voter.node_id].bell.ring()
        await trio.testing.wait_all_tasks_blocked()
        assert voter._driver.durable_token == voter._driver.submitted and voter.status().lapse_index
        assert not [message for source, _, message in net.sent if source == voter.node_id
                    and isinstance(message, VoteReply) and message.result == VoteResult.ACCEPT]


# --- whole nodes ---------------------------------------------------------------------------------------------------


def lose_the_leader_with_the_later_life(cluster: Cluster) -> str:
    """Two acknowledged alone; then the third one meets an older copy of one of them. Returns the other, which led."""
    cluster.propose(b"1")
    cluster.run_ms(500)
    leader = cluster.leader
    assert leader is not None
    copied, third = (name for name in cluster.nodes if name != leader)
    node = cluster.nodes[copied]
    cluster.crash(copied)
    assert isinstance(node.disk, MemoryDisk)
    copy, lives, shadow = node.disk.copy(), node.lives, Copy(cluster.checker.nodes[copied])
    cluster.start(copied)
    cluster.run_ms(500)
    cluster.crash(third)
    assert cluster.propose(b"1") == 2
    cluster.crash(leader)
    cluster.crash(copied)
    node.disk, node.lives = copy, lives
    cluster.checker.lost(copied, shadow)
    cluster.start(copied)
    cluster.start(third)
    cluster.run_ms(10_000)
    return leader


def test_BUG_F15_the_leader_is_lost_with_the_later_life_and_nothing_is_forgotten() -> None:
    """The simulated group: what two acknowledged is there when they come back, one of them as an older copy."""
    with Cluster(3, Counter, seed=1) as cluster:
        leader = lose_the_leader_with_the_later_life(cluster)
        assert cluster.leader is None and cluster.counts["told by a peer"] == 1
        cluster.start(leader)
        assert cluster.propose(b"1") == 3
        assert cluster.checker.counts["INV_R36"] > 0


def test_the_property_notices_a_node_that_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lives, "missing", lambda *_: ())
    with Cluster(3, Counter, seed=1) as cluster, pytest.raises(InvariantViolation, match="INV_R36"):
        lose_the_leader_with_the_later_life(cluster)


async def test_BUG_F15_peers_tell_a_real_node_that_it_is_an_older_copy(tmp_path: Path) -> None:
    """Over TCP and on disk; peers that were restarted since know it too. It regains, and is told in vain next time."""
    events: list[Event] = []
    with trio.fail_after(60):
        cluster = Three(tmp_path)
        await cluster.reserve("n0", "n1", "n2")
        async with AsyncExitStack() as first:
            for name in ("n0", "n1"):
                await first.enter_async_context(cluster.open(name))
            async with cluster.open("n2"):
                await (await cluster.leader()).propose(b"1")
            await trio.to_thread.run_sync(shutil.copytree, tmp_path / "n2", tmp_path / "copy")
            async with cluster.open("n2") as later:
                await (await cluster.leader()).propose(b"1")
                while n(later) < 2 or not all(later._driver.replica.incarnation in (tmp_path / name / NAME).read_bytes()
                                              for name in ("n0", "n1")):
                    await trio.sleep(0.01)
        await trio.to_thread.run_sync(shutil.rmtree, tmp_path / "n2")
        await trio.to_thread.run_sync((tmp_path / "copy").rename, tmp_path / "n2")
        async with AsyncExitStack() as second:
            for name in ("n0", "n1"):
                await second.enter_async_context(cluster.open(name))
            await cluster.leader()
            async with cluster.open("n2", trace=events.append) as copy:
                while not any(isinstance(event, Regained) for event in events):
                    await trio.sleep(0.01)
                assert next(type(event) for event in events if isinstance(event, (Outlived, Regained))) is Outlived
                await (await cluster.leader()).propose(b"1")
                while n(copy) < 3:
                    await trio.sleep(0.01)
            events.clear()
            async with cluster.open("n2", trace=events.append) as copy:
                while copy._driver.replica.leader is None or n(copy) < 3:
                    await trio.sleep(0.01)
            assert not any(isinstance(event, Outlived) for event in events)
