"""Assertions of the broker's cores catch defects by themselves: one is planted in each module, and a few calls meet it.

``INSIDE`` says which text of a module is changed to what, and which calls go through it. Without the change the calls
pass; with it they end in an ``AssertionError`` of the broker. Where the module's assertions are left out they pass with
the change as well: nothing but an assertion noticed. ``NOTICED_ANYWAY`` has the exceptions.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import attrs
import pytest

from benchmarks.structure import Tree, is_assertion
from broker.ha.acks import PutStatus, QuorumConfig, need_of
from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.epochs import EpochList
from broker.ha.insync import InSync
from broker.ha.master import LogView
from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.ha.wire import Ack, MasterHandshake, SlaveHandshake
from broker.replicas.config import ManagerConfig
from broker.replicas.identity import Application
from broker.replicas.lease import Gate
from broker.replicas.machine import RoleMachine, State
from broker.replicas.outputs import Serve
from broker.replicas.timetable import Kind
from broker.replicas.underway import UnderWay
from broker.store.checkpoint import Checkpoint
from broker.store.commitlog import CommitLog
from broker.store.dispatch import TagCodes
from broker.store.files import MemoryFiles, Space
from broker.store.indexfile import KeyIndex
from broker.store.queues import Queues
from broker.store.retention import RetentionConfig
from broker.store.store import MessageStore, StoreConfig
from remoting.bodies.controller import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from remoting.codes import RequestCode
from remoting.command import response
from remoting.daemon import files as daemon
from remoting.record import Message, encode, size_of

ONE = Message(b"Orders", b"body", 0)
SIZE = size_of(ONE)
SMALL = StoreConfig(log_file_bytes=4096, queue_file_bytes=400, index_slots=100, index_entries=1000)
ALONE = HaConfig(all_ack_in_sync_state_set=True)
SECOND = 1_000 * NS_PER_MS


def in_sync(log_end: int = 150) -> InSync:
    return InSync(1, ALONE, frozenset({1}), 1, 0, 0, log_end, log_end, 0)


def puts_out_of_order(acks: Any) -> None:
    queue = acks.PutQueue(lambda put, status: None)
    for end in (20, 10):
        queue.add("put", end, need_of(2), SECOND)
    queue.fail_all(PutStatus.FLUSH_SLAVE_TIMEOUT)


def an_offset_before_an_epoch(epochs: Any) -> None:
    assert epochs.EpochList([(1, 0), (2, 10)]).find(9) == (1, 0)


def a_list_that_is_empty_again(epochfile: Any) -> None:
    one = epochfile.EpochFile(MemoryFiles())
    for epochs in ([(1, 0)], [(1, 0), (2, 10)], []):
        one.write(EpochList(epochs))


def a_member_more(insync: Any) -> None:
    held = insync.InSync(1, ALONE, frozenset({1}), 1, 0, 0, 100, 100, 0)
    held.accept({1, 2}, 2)
    held.tick(0)


def a_frame_at_a_file_end(master: Any) -> None:
    core = master.HaMaster(ALONE, in_sync(), EpochList([(1, 0)]))
    core.opened(7, 0)
    core.received(7, SlaveHandshake(2), 0)
    core.next_send(7, LogView(0, 150, 100, 100), 0)
    core.received(7, Ack(0), 0)
    assert core.next_send(7, LogView(0, 150, 100, 100), 0).size == 100


def a_pause_under_flow_control(pace: Any) -> None:
    one = pace.Pace(HaConfig(flow_control_bytes_per_second=1_000), 0)
    one.take(100, 100, 10 * SECOND)


def a_crowd(places: Any) -> None:
    crowd = [places.Place(number, "host", places.Stage.SILENT) for number in range(6)]
    assert len(places.superfluous(crowd, 4)) == 2


def a_silence_that_ends(silence: Any) -> None:
    attention = silence.Attention(HaConfig())
    ear = silence.Ear(attention, 0, beats=True)
    for now_ns in range(0, 4 * SECOND, silence.LOOK_NS):
        attention.look(now_ns)
        ear.look(now_ns)
    ear.heard_ns = 4 * SECOND
    ear.look(4 * SECOND)


def a_slave_that_is_ahead(slave: Any) -> None:
    core = slave.HaSlave(ALONE, 2, EpochList([(1, 0)]), 100, 0)
    core.follow("master", 0)
    core.connected(0)
    core.received(MasterHandshake(50, EpochList([(1, 0)])), 0)


def a_mastership(taking: Any) -> None:
    taking.steps(taking.From.NONE, taking.BecomeMaster(1, frozenset({1}), 1))


def a_record_in_two_parts(whole: Any) -> None:
    record = encode(ONE, 0, 0, 0)
    one = whole.WholeRecords(1 << 20)
    for begin, part in ((0, record[:20]), (20, record[20:])):
        one.take(part, begin)


def a_late_epoch(wire: Any) -> None:
    wire.MasterHandshake(10, EpochList([(2_000, 0)])).to_bytes()


def two_outputs(carrying: Any) -> None:
    carrying.Carrier(lambda output: None, lambda: None, lambda: None)([Serve(), Serve()])


def a_higher_minimum(demand: Any) -> None:
    gate = Gate(1)
    demand.Demand(lambda: gate, QuorumConfig(2), lambda config: None).change(QuorumConfig(2, 2, 2))


def a_lease_renewed(leader: Any) -> None:
    leader.LeaderSearch(("a", "b"), UnderWay(1_000), retry_ms=1, period_ms=1).renewed("b", 1)


def a_first_lease(lease: Any) -> None:
    lease.Lease(SECOND).answered(0, True)


def an_identity_and_its_application(membership: Any) -> None:
    files = daemon.MemoryFiles()
    files.replace("id", b"cluster#group#1")
    files.replace("id-temp", b"cluster#group#1#code")
    heir = type("Heir", (membership.Membership,), dict.fromkeys(membership.Membership.__abstractmethods__))
    heir(ManagerConfig("cluster", "group", "here:1", ("there:1",)), files=files, identity_path="id", check_code="code",
         log_state=None, advance=None, doubtful_epoch=0, life=None, lives=None)


def an_identity_read_and_written(identity: Any) -> None:
    assert identity.load("cluster", "group", "cluster#group#1", None).to_text()


def a_role(machine: Any) -> None:
    one, role = machine.RoleMachine(machine.State.IDLE), BecomeMaster(1, frozenset({1}), 1)
    one.named(role)
    one.taken(role)


def a_first_tick(manager: Any) -> None:
    config = ManagerConfig("cluster", "group", "here:1", ("there:1",))
    manager.ReplicasManager(config, None, "code").tick(0)


def an_application_written(registering: Any) -> None:
    one = registering.Registering(
        ManagerConfig("cluster", "group", "here:1", ("there:1",)), Application("cluster", "group", 1, "code"), "code",
        None, None, RoleMachine(State.APPLYING), Gate(1), UnderWay(1_000), lambda event: [], lambda answer, number: [])
    one.write()
    one.written()


def a_group_of_three(probing: Any) -> None:
    under_way = UnderWay(1_000)
    one = probing.Probing("cluster", "group", under_way, interval_ms=10, silence_ms=100, members_ms=10)
    one.judge(BecomeSlave(1, 1, "one:1"))
    asked = one.look(0, "leader:1", 2)[0]
    there = [ReplicaIdentity("group", number, f"{number}:1", True) for number in (1, 2, 3)]
    told = BrokerReplicasInfo({"group": ReplicasInfo(1, "one:1", 1, 1, there, [])}).to_json()
    under_way.ended(asked.request).on_answer(response(asked.command, body=told), asked.request)  # type: ignore[union-attr]
    one.look(SECOND, "leader:1", 2)


def a_kind_that_waits(timetable: Any) -> None:
    times = timetable.Timetable()
    for number in range(2):
        if times.due(Kind.POLL, 0):
            times.sent(number, Kind.POLL)


def two_requests_of_a_kind(underway: Any) -> None:
    one = underway.UnderWay(1_000)
    for _ in range(2):
        one.send(Kind.POLL, "a", RequestCode.CONTROLLER_GET_REPLICA_INFO, None, 0, lambda answer, number: [])


def two_attempts(yielding: Any) -> None:
    one = yielding.Yielding(SECOND, 3 * SECOND, False)
    few = yielding.Sight(too_few=True)
    for now_ns in range(SECOND, 9 * SECOND, SECOND // 2):
        one.look(now_ns, few)
        one.asks(now_ns, few)


def an_hour_of_deletion(cleaning: Any) -> None:
    files = MemoryFiles()
    log = CommitLog(files, file_bytes=2 * SIZE)
    log.open()
    for number in range(2):
        log.append(ONE, number, 0)
    cleaning.Cleaner(files, log, Queues(files, TagCodes(), file_bytes=400), None,
                     SimpleNamespace()).old(RetentionConfig(), 1 << 40, 4)


def a_page(checkpoint: Any) -> None:
    checkpoint.Checkpoint().encode()


def a_log_with_a_narrow_end(commitlog: Any) -> None:
    log = commitlog.CommitLog(MemoryFiles(), file_bytes=2 * SIZE + 4)
    log.open()
    assert [log.append(ONE, number, 0)[0] for number in range(2)] == [0, 2 * SIZE + 4]


def a_queue_from_the_middle(consumequeue: Any) -> None:
    queue = consumequeue.ConsumeQueue(MemoryFiles(), "queue", file_bytes=400)
    queue.open(1_000)
    queue.append(5, 0, 100, 0)


def three_good_tries(diagnosis: Any) -> None:
    one = diagnosis.Diagnosis(0)
    one.no_room(0)
    for _ in range(3):
        one.tried(0, 0, room=True, works=True)


def a_log_confirmed_in_part(dispatch: Any) -> None:
    log = CommitLog(MemoryFiles(), file_bytes=4096)
    log.open()
    for number in range(2):
        log.append(ONE, number, 0)
    dispatch.Dispatcher(log, 0, lambda run: None).dispatch(SIZE, 10)


def the_end_of_a_log(log: Any) -> None:
    whole = CommitLog(MemoryFiles(), file_bytes=4096)
    whole.open()
    whole.append(ONE, 0, 0)
    log.Log.boundary(whole, SIZE)


def a_disk_that_is_tried(trial: Any) -> None:
    trial.try_disk(MemoryFiles(), 10)


def a_damaged_queue(mending: Any) -> None:
    files, store = opened_with(2)
    files.content[f"consumequeue/Orders/0/{0:020d}"].data[:8] = bytes([9] * 8)
    mender = mending.Mender(store.log, store._queues, store.visible)
    mender.ask(b"Orders", 0)
    while mender.is_busy:
        mender.step(10)


def two_messages_of_a_second(messages: Any) -> None:
    _, store = opened_with(2)
    messages.StoredMessages(store.log, store._queues, None).offset_by_time(b"Orders", 0, 1)


def a_power_cut(files: Any) -> None:
    file = files.MemoryFile()
    file.pwrite(bytes(600), 100)
    file.crash(lambda count: count)


def a_checkpoint(flush: Any) -> None:
    for _ in flush.Flush(MemoryFiles(), (), (), None, Checkpoint()).steps():
        pass


def an_index_flush(indexfile: Any) -> None:
    file = indexfile.IndexFile(MemoryFiles(), "index/1", 100, 1_000)
    file.put([(1, 0, 0), (2, 100, 0)])
    for _ in file.begin_flush():
        pass
    file.flushed()


def the_smallest_hash(keys: Any) -> None:
    assert keys.key_hash("polygenelubricants") == 0


def a_changed_queue(queues: Any) -> None:
    every = queues.Queues(MemoryFiles(), TagCodes(), file_bytes=400)
    every.take([(0, 100, 0, 0, 0, 0, b"Orders", b"")])
    every.to_sync()


def files_of_which_none_is_needed(needed: Any) -> None:
    assert needed.Needed(print, begin=lambda: 100).spare(100) == 100


def bytes_that_go_on(recent: Any) -> None:
    one = recent.Recent()
    one.wrote(b"abc", 0)
    one.went_on([b"de"], 3, 0)


def many_old_files(retention: Any) -> None:
    retention.old_files(retention.RetentionConfig(delete_files_batch_max=2), [0] * 5, 1 << 40, 4, 0.1, 0.01)


def full_disks(scattered: Any) -> None:
    folder = scattered.LogFolder("a", MemoryFiles(disk=Space(100, 0)))
    scattered.ScatteredFiles(MemoryFiles(), (folder,), full_ratio=0.5).open(f"commitlog/{0:020d}", create=True)


def a_cut(store: Any) -> None:
    one = store.MessageStore(MemoryFiles(), SMALL)
    one.open()
    one.writer.put(ONE, 0)
    one.visible.advance()
    one.truncate(0)


def two_lives(lives: Any) -> None:
    lives.StoreLives(MemoryFiles(), None).write((71, 72))


def a_doubt_that_ends(trust: Any) -> None:
    one = trust.LogTrust(trust.TrustFile(MemoryFiles(), "boot", synced=False), print)
    one.in_doubt, one.trusted_end = True, 10
    one.regained()
    one.truncate(20)


def a_cut_behind_the_index(visible: Any) -> None:
    files = MemoryFiles()
    log = CommitLog(files, file_bytes=4096)
    log.open()
    queues = Queues(files, TagCodes(), file_bytes=400)
    one = visible.Visible(log, queues, KeyIndex(files, slots=100, entries=100))
    one.start_at(10)
    one.truncate(0)


def two_messages_at_a_file_end(writing: Any) -> None:
    files = MemoryFiles()
    log = CommitLog(files, file_bytes=3 * SIZE)
    log.open()
    one = writing.Writer(log, Queues(files, TagCodes(), file_bytes=400), SimpleNamespace(offset=0))
    one.number_from(0)
    one.put(ONE, 0)
    one.put_all([ONE, ONE], 0)


def opened_with(count: int) -> tuple[MemoryFiles, MessageStore]:
    """A store with so many messages, stored at 0, 1, …"""
    files = MemoryFiles()
    store = MessageStore(files, SMALL)
    store.open()
    store.take_over()
    for number in range(count):
        store.writer.put(ONE, number)
    store.log.write()
    store.visible.advance()
    return files, store


@attrs.frozen
class Inside:
    """``old`` of ``module`` becomes ``new``; ``calls`` gets the module."""

    module: str
    old: str
    new: str
    calls: Callable[[Any], None]


INSIDE = [
    Inside("broker.ha.acks", "if queue and end < queue[-1][0]:", "if False:", puts_out_of_order),
    Inside("broker.ha.epochfile", "if not epochs and self._files", "if epochs and self._files",
           a_list_that_is_empty_again),
    Inside("broker.ha.epochs", "bisect_right(self.entries, offset, ", "bisect_right(self.entries, offset + 1, ",
           an_offset_before_an_epoch),
    Inside("broker.ha.insync", "self._before_ns.clear()\n        self._counted = None\n", "self._before_ns.clear()\n",
           a_member_more),
    Inside("broker.ha.master", "log.file_bytes - begin % log.file_bytes, now_ns)", "behind, now_ns)",
           a_frame_at_a_file_end),
    Inside("broker.ha.pace", "min(float(rate), self._allowance + refill)", "self._allowance + refill",
           a_pause_under_flow_control),
    Inside("broker.ha.places", "spared=most // _SPARED + 1", "spared=len(others)", a_crowd),
    Inside("broker.ha.silence", "self._repeated_ns, self._silent_ns = False, 0, None, None",
           "self._repeated_ns = False, 0, None", a_silence_that_ends),
    Inside("broker.ha.slave", "if point < self._received_end or everything:", "if everything:", a_slave_that_is_ahead),
    Inside("broker.ha.taking", "(Step.CONFIRM, Step.SHOW, Step.OPEN)", "(Step.OPEN, Step.CONFIRM, Step.SHOW)",
           a_mastership),
    Inside("broker.ha.whole", "            self._held.clear()\n        end", "        end", a_record_in_two_parts),
    Inside("broker.ha.wire", "range(max(1, first - EPOCHS_MAX + len(told)), first)", "range(1, first)", a_late_epoch),
    Inside("broker.replicas.carrying", "while self._outputs:", "if self._outputs:", two_outputs),
    Inside("broker.replicas.demand", "self._gate().announce(wanted.min_in_sync_replicas)", "pass", a_higher_minimum),
    Inside("broker.replicas.identity", "return fields, int(fields[2])", "return fields, -int(fields[2])",
           an_identity_read_and_written),
    Inside("broker.replicas.leader", "self._lead_by(address)  # one", "pass  # one", a_lease_renewed),
    Inside("broker.replicas.lease", "self.granted or renewed is not None", "self.granted", a_first_lease),
    Inside("broker.replicas.machine", "self.role, self.target = role, None", "self.target = None", a_role),
    Inside("broker.replicas.manager", 'return f"the broker has no role: {machine.state.value}"', 'return ""',
           a_first_tick),
    Inside("broker.replicas.membership", "files.remove(identity_path + TEMP)  # a", "pass  # a",
           an_identity_and_its_application),
    Inside("broker.replicas.probing", " and each.broker_id not in but", "", a_group_of_three),
    Inside("broker.replicas.registering", "self._writing = True", "pass", an_application_written),
    Inside("broker.replicas.timetable", ' and (kind, "") not in self._waits', "", a_kind_that_waits),
    Inside("broker.replicas.underway", "if kind is not None and times.waits(kind, slot):", "if False:",
           two_requests_of_a_kind),
    Inside("broker.replicas.yielding", "self._unanswered_ns.clear()\n        self._rests_until_ns",
           "self._rests_until_ns", two_attempts),
    Inside("broker.store.checkpoint", "ljust(_PAGE_BYTES,", "ljust(40,", a_page),
    Inside("broker.store.cleaning", "+ count * log.file_bytes", "+ (count + 1) * log.file_bytes",
           an_hour_of_deletion),
    Inside("broker.store.commitlog", "if size + BLANK_BYTES_MIN <= left:", "if size <= left:", a_log_with_a_narrow_end),
    Inside("broker.store.consumequeue", "if queue_offset > self.max_offset:", "if False:", a_queue_from_the_middle),
    Inside("broker.store.diagnosis", "self._good >= GOOD_TRIES", "self._good > GOOD_TRIES", three_good_tries),
    Inside("broker.store.dispatch", "self._log.run(self.offset, upto, ", "self._log.run(self.offset, 1 << 40, ",
           a_log_confirmed_in_part),
    Inside("broker.store.files", "data[: SECTOR_BYTES - at % SECTOR_BYTES]", "data[:SECTOR_BYTES]", a_power_cut),
    Inside("broker.store.flush", "self.queues_synced = True", "pass", a_checkpoint),
    Inside("broker.store.indexfile", "self._written += len(self._flushing) // _ENTRY.size", "self._written += 1",
           an_index_flush),
    Inside("broker.store.keys", "if code > 1 << 31 else 0", "if code > 1 << 31 else code", the_smallest_hash),
    Inside("broker.store.log", "at = offset + size\n", "at = offset + size + 1\n", the_end_of_a_log),
    Inside("broker.store.mending", "        walk.write()\n        if walk.is_partial:", "        if walk.is_partial:",
           a_damaged_queue),
    Inside("broker.store.messages", "low = middle + 1", "low = middle + 2", two_messages_of_a_second),
    Inside("broker.store.needed", "begin >= offset", "begin > offset", files_of_which_none_is_needed),
    Inside("broker.store.queues", "del self._changed[queue]", "pass", a_changed_queue),
    Inside("broker.store.recent", "room[:at], offset - kept", "room[:at], offset", bytes_that_go_on),
    Inside("broker.store.retention", "newest_ms[: config.delete_files_batch_max]:", "newest_ms:", many_old_files),
    Inside("broker.store.scattered", "among = roomy or writable", "among = roomy", full_disks),
    Inside("broker.store.store", "self.visible.truncate(offset)", "pass", a_cut),
    Inside("broker.store.trial", "_try(disk, room)\n", "_try(disk, 0)\n", a_disk_that_is_tried),
    Inside("broker.store.lives", 'f"{life}\\n"', 'f"{life}"', two_lives),
    Inside("broker.store.trust", "self.in_doubt, self.trusted_end = False, None", "self.in_doubt = False",
           a_doubt_that_ends),
    Inside("broker.store.visible", "for told in (self._to_queues, self._to_index):", "for told in (self._to_queues,):",
           a_cut_behind_the_index),
    Inside("broker.store.writing", "self._log.make_room(size)", "pass", two_messages_at_a_file_end),
]


NOTICED_ANYWAY = {
    "broker.ha.epochs", "broker.ha.master", "broker.ha.places", "broker.replicas.underway", "broker.store.commitlog",
    "broker.store.keys", "broker.store.scattered", "broker.store.trial"}
"""Defects that the calls, another module's assertion or Python itself notice too."""


def copy_of(module: ModuleType, old: str, new: str, *, with_asserts: bool = True) -> ModuleType:
    """The module made anew from its source, changed; nobody else sees it."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"the text to change occurs {source.count(old)} times"
    made = ModuleType(module.__name__)
    made.__file__ = module.__file__
    exec(compile(source.replace(old, new), module.__file__, "exec", optimize=0 if with_asserts else 1), made.__dict__)
    return made


@pytest.mark.parametrize("inside", INSIDE, ids=lambda inside: inside.module)
def test_a_planted_defect_ends_in_an_assertion(inside: Inside) -> None:
    module = import_module(inside.module)
    inside.calls(copy_of(module, inside.old, inside.old))
    with pytest.raises(AssertionError) as caught:
        inside.calls(copy_of(module, inside.old, inside.new))
    raised_in = traceback.extract_tb(caught.value.__traceback__)[-1].filename
    assert "broker" in Path(raised_in).parts[-3:] and raised_in != __file__, "no assertion of this test"
    assert sys.modules[inside.module] is module


@pytest.mark.parametrize("inside", [each for each in INSIDE if each.module not in NOTICED_ANYWAY],
                         ids=lambda inside: inside.module)
def test_only_the_assertion_notices(inside: Inside) -> None:
    inside.calls(copy_of(import_module(inside.module), inside.old, inside.new, with_asserts=False))


def test_each_package_of_cores_has_defects_that_only_an_assertion_notices() -> None:
    alone = {inside.module.rpartition(".")[0] for inside in INSIDE if inside.module not in NOTICED_ANYWAY}
    assert alone == {"broker.ha", "broker.replicas", "broker.store"}
    assert {inside.module for inside in INSIDE} >= NOTICED_ANYWAY


def test_each_core_that_asserts_has_a_planted_defect() -> None:
    tree = Tree(Path(__file__).parents[2])
    cores = [each for room in ("broker.ha", "broker.replicas", "broker.store") for each in tree.of(room)
             if "core" in each.kinds]
    assert {inside.module for inside in INSIDE} == {each.name for each in cores if any(map(is_assertion, each.nodes))}
