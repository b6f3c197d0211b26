"""What a slave learns without its master: kept, copied to the other slave, handed over, and forgotten."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from broker.ledger import part as ledger_part
from broker.ledger.codes import LEDGER_IS_KEPT, READ_LEDGER, LedgerIsKeptRequest, ReadLedgerRequest
from broker.ledger.entries import Entry, Mark, Subject, Thing, decode
from broker.ledger.file import LedgerFile
from broker.ledger.part import HAND_OVER_MS, LEARN_NS, NOT_READ, LedgerPart
from broker.store.files import MemoryFiles as StoreFiles
from broker.timer.part import TimersPart
from broker.transactions.part import TransactionsPart
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.daemon.files import MemoryFiles
from remoting.errors import ConnectionClosed
from remoting.headers.pulling import UpdateConsumerOffsetRequest
from tests.broker.escape.test_part import two_groups
from tests.broker.pop.world import Popper
from tests.broker.preonline.test_levelling import ACTING, SLAVE, hindered, pair
from tests.broker.standin.test_part import info, may_deliver

OFFSET = Thing(Subject.OFFSET, "T@G", 0)


def ledger(node: Node) -> LedgerPart:
    return node.broker.parts[LedgerPart]


async def commit(made: Cluster, node: Node, offset: int) -> Command:
    return await made.ask(node.address, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest(
        "G", "T", 0, offset))


async def test_a_commit_that_was_answered_outlives_a_slave_that_is_killed(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await trio.sleep(15)  # logs are synced
        await master.kill()
        assert (await commit(made, slave, 7)).code == ResponseCode.SUCCESS
        assert (await commit(made, slave, 5)).code == ResponseCode.SUCCESS, "back, as its consumers want"
        await slave.kill()
        await slave.start()
        await until(lambda: slave.broker.standing.role.listed)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 5
        assert ledger(master).joined == 1
        assert not ledger(slave).ledger.get(OFFSET), "the master has it"


@pytest.mark.parametrize("full", ["master", "slave", "slave when it forgets"])
async def test_a_disk_that_is_full_keeps_the_master_away_in_words(full: str, autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await trio.sleep(15)
        await master.kill()
        await until(lambda: slave.broker.standing.role.acts)
        assert (await commit(made, slave, 4)).code == ResponseCode.SUCCESS
        await master.start()
        part = ledger(master if full == "master" else slave)
        write, forget = part.file._run_sync, part._forget

        async def fails(work: Callable[[], None]) -> None:
            await trio.lowlevel.checkpoint()
            raise OSError(28, "No space left on device")

        def forgets(*told: Any) -> None:
            part.file._run_sync = fails
            forget(*told)

        words = "config/actingLedger cannot be written: [Errno 28] No space left on device"
        if full == "slave when it forgets":
            cast(Any, part)._forget = forgets
        else:
            part.file._run_sync = fails
        if full == "slave":
            answer = await commit(made, slave, 7)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words)
        await hindered(master, words)
        part.file._run_sync, cast(Any, part)._forget = write, forget
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == (7 if full == "slave" else 4)


async def test_the_last_word_of_the_slave_counts_and_it_learns_no_more(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        assert (await commit(made, slave, 9)).code == ResponseCode.SUCCESS
        answer = await made.ask(slave.address, READ_LEDGER, ReadLedgerRequest(0, 0, hand_over=True))
        (entry,), _ = decode(answer.body)
        assert (entry.thing, entry.value) == (OFFSET, 9)
        for asked in (await commit(made, slave, 3), await made.ask(slave.address, RequestCode.LOCK_BATCH_MQ),
                      await made.ask(slave.address, RequestCode.END_TRANSACTION)):
            assert (asked.code, asked.remark) == (
                ResponseCode.SYSTEM_ERROR, "the master of this group comes back: ask it")
        slave.offsets.commit("G", "T", 0, 2)  # as pulls do
        assert slave.offsets.query("G", "T", 0) == 9
        await trio.sleep(11)
        assert (await commit(made, slave, 4)).code == ResponseCode.SUCCESS, "it did not come back after all"


async def test_the_next_slave_has_it_as_far_as_it_was_copied(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, first = await pair(made)
        second = await made.node(**ACTING, **SLAVE | {"brokerId": "2"})
        await until(lambda: second.broker.standing.role.listed and second.groups.get("G")
                    and second.broker.journal.end == master.broker.journal.end)
        await trio.sleep(15)
        await master.kill()
        await commit(made, first, 6)
        await until(lambda: second.offsets.query("G", "T", 0) == 6)
        first_mark = ledger(first).ledger.end
        await first.kill()
        await commit(made, second, 4)
        assert ledger(second).ledger.end > first_mark, "what is noted later counts, whoever notes it"
        await first.start()
        await until(lambda: first.offsets.query("G", "T", 0) == 4)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 4


async def test_an_offset_that_is_committed_again_counts_after_what_another_slave_was_told(
        autojump_clock: MockClock) -> None:
    """Name servers may show clients now the one slave, now the other one."""
    async with cluster() as made:
        master, first, second = await three(made)
        await master.kill()
        await until(lambda: first.broker.standing.role.acts)
        for node, offset in ((first, 4), (second, 8), (first, 4)):
            assert (await commit(made, node, offset)).code == ResponseCode.SUCCESS
            await trio.sleep(0.01)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 4, "8 would pass over what the group wants again"


async def three(made: Cluster) -> tuple[Node, Node, Node]:
    """A master and two slaves, which know T and G and have all of the log on disk."""
    master, first = await pair(made)
    second = await made.node(**ACTING, **SLAVE | {"brokerId": "2"})
    await until(lambda: second.broker.standing.role.listed and second.groups.get("G")
                and second.broker.journal.end == master.broker.journal.end)
    await trio.sleep(15)
    return master, first, second


def loses(monkeypatch: pytest.MonkeyPatch, lost: Callable[[str, int], bool]) -> None:
    """Requests for which ``lost`` returns true, given the address and the code, are not answered."""
    call = Client.call

    async def calls(client: Client, address: str, command: Command, timeout_ms: float | None = None) -> Command:
        if lost(address, command.code):
            raise ConnectionClosed(address, "lost")
        return await call(client, address, command, timeout_ms)

    monkeypatch.setattr(Client, "call", calls)


async def knows_less(made: Cluster, monkeypatch: pytest.MonkeyPatch) -> tuple[Node, Node, Node]:
    """The master is down, the first slave has 4, and the second one has 8 of it, which was noted before."""
    master, first, second = await three(made)
    await master.kill()
    await commit(made, first, 8)
    await until(lambda: second.offsets.query("G", "T", 0) == 8)
    loses(monkeypatch, lambda address, code: address == first.address and code == READ_LEDGER)
    await commit(made, first, 4)
    return master, first, second


async def test_what_one_slave_forgot_counts_where_another_one_has_something_older(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        master, first, second = await knows_less(made, monkeypatch)
        told: list[str] = []

        def is_lost(address: str, code: int) -> bool:
            told.extend([address] * (code == LEDGER_IS_KEPT))
            return code == LEDGER_IS_KEPT and address == second.address and told.count(address) == 1

        monkeypatch.undo()
        loses(monkeypatch, is_lost)
        await master.start()
        await until(lambda: len(told) == 2)
        assert ledger(first).ledger.get(OFFSET) is None and ledger(second).ledger.get(OFFSET) == 8
        await master.kill()
        await master.start()
        await until(lambda: master.serves)
        assert told == [first.address, second.address] * 2
        assert master.offsets.query("G", "T", 0) == 4, "8 would pass over what the group wants again"
        assert all(ledger(node).ledger.get(OFFSET) is None for node in (master, first, second))


async def test_a_member_without_a_ledger_is_not_told_what_is_kept(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        master, first, second = await three(made)
        await master.kill()
        await commit(made, second, 8)
        call, told = Client.call, list[tuple[str, int]]()

        async def calls(client: Client, address: str, command: Command, timeout_ms: float | None = None) -> Command:
            told.append((address, command.code))
            if address == first.address and command.code in (READ_LEDGER, LEDGER_IS_KEPT):
                return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            return await call(client, address, command, timeout_ms)

        monkeypatch.setattr(Client, "call", calls)
        await master.start()
        await until(lambda: master.serves)
        assert (first.address, READ_LEDGER) in told and (second.address, LEDGER_IS_KEPT) in told
        assert (first.address, LEDGER_IS_KEPT) not in told
        assert master.offsets.query("G", "T", 0) == 8


async def test_what_was_noted_before_a_master_led_does_not_come_back_with_a_slave(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        master, first, second = await knows_less(made, monkeypatch)
        await second.kill()
        monkeypatch.undo()
        await trio.sleep(12)
        await master.start()
        await until(lambda: master.serves)
        await commit(made, master, 5)
        await trio.sleep(12)  # on disk, and copied by the first slave
        await second.start()
        await until(lambda: second.broker.standing.role.listed)
        assert ledger(second).ledger.get(OFFSET) == 8
        await master.kill()
        await first.kill()
        await first.start()
        await until(lambda: first.broker.standing.role.acts)
        await trio.sleep(3)
        assert first.offsets.query("G", "T", 0) == 5, "it hears all of the other ledger anew"
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 5
        assert ledger(second).ledger.get(OFFSET) is None


async def test_what_a_master_has_is_not_taken_by_a_slave_that_is_started_again(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        _, first, second = await three(made)
        ledger(second).note(OFFSET, 8)
        kept = LedgerIsKeptRequest(*ledger(second).ledger.end)
        assert (await made.ask(first.address, LEDGER_IS_KEPT, kept)).code == ResponseCode.SUCCESS
        await first.kill()
        await first.start()
        (entry,) = ledger(second).ledger.after()
        ledger(first)._take(entry)
        assert ledger(first).ledger.get(OFFSET) is first.offsets.query("G", "T", 0) is None


async def test_a_master_that_leads_before_all_have_heard_takes_nothing_from_its_own_ledger_later(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        master, first, second = await knows_less(made, monkeypatch)
        monkeypatch.undo()
        loses(monkeypatch, lambda address, code: address == second.address and code == LEDGER_IS_KEPT)
        await master.start()
        await until(lambda: ledger(master).ledger.get(OFFSET) == 4 and ledger(first).ledger.get(OFFSET) is None)
        await master.kill()
        master.settings["skipPreOnline"] = "true"
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 4 and ledger(master).ledger.get(OFFSET) is None
        await commit(made, master, 5)
        await trio.sleep(6)
        await master.kill()
        monkeypatch.undo()
        master.settings["skipPreOnline"] = "false"
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 5


async def test_what_a_master_never_read_is_forgotten_when_it_would_set_it_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        await commit(made, slave, 5)
        master.settings["skipPreOnline"] = "true"
        await master.start()
        await until(lambda: master.serves)
        await trio.sleep(60)
        assert ledger(slave).ledger.get(OFFSET) is None
        assert ledger(slave).ledger.end > Mark(), "terms do not begin anew"


async def test_a_master_leaves_out_what_no_slave_writes(
        autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    illegible = [Thing(Subject.DECIDED, "a half", 0), Thing(Subject.DECIDED, "9" * 30, 0),
                 Thing(Subject.ACKED, "0 1 2", 0)]
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        await commit(made, slave, 5)
        for thing in illegible:
            ledger(slave).note(thing, 1)
        await master.start()
        await until(lambda: master.serves)
        await trio.sleep(5)
        assert master.serves and master.offsets.query("G", "T", 0) == 5, "what makes sense is taken"
        assert not [*ledger(master).ledger.of(Subject.DECIDED, Subject.ACKED)]
        assert caplog.text.count("nothing that makes sense") >= len(illegible)


async def test_offsets_beyond_the_queue_are_not_taken(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        await commit(made, slave, 11)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) is None


async def test_a_slave_goes_on_when_the_master_that_came_back_is_lost_again(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await trio.sleep(15)
        for offset in (4, 6):
            await master.kill()
            await commit(made, slave, offset)
            await master.start()
            await until(lambda: master.serves)
            assert master.offsets.query("G", "T", 0) == offset
            await trio.sleep(3)  # name servers are asked by then
            assert not ledger(slave).is_handed_over


async def test_a_commit_is_answered_when_it_is_synced(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        disk, write = trio.Event(), ledger(slave).file._run_sync
        answers: list[Command] = []

        async def slow(work: Callable[[], None]) -> None:
            await disk.wait()
            await write(work)

        async def ask() -> None:
            answers.append(await commit(made, slave, 5))

        ledger(slave).file._run_sync = slow
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(5)
            assert not answers
            disk.set()
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS]


def times(node: Node) -> list[tuple[Thing, int]]:
    return [(entry.thing, entry.value) for entry in ledger(node).ledger.of(Subject.TIMERS)]


def passed(node: Node, time_ms: int) -> bool:
    return node.broker.parts[TimersPart].done_before_ms >= time_ms


async def test_the_time_of_the_timers_outlives_a_master_that_is_lost_before_its_wheel_is_on_disk(
        autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await made.send(master.address, b"later", properties="TIMER_DELAY_SEC\x013600\x02UNIQ_KEY\x01t\x02")
        await until(lambda: slave.broker.journal.end == master.broker.journal.end)
        await trio.sleep(15)
        await master.kill()
        await until(lambda: slave.broker.standing.role.acts and times(slave))
        for _ in range(2):
            await master.start()
            await until(lambda: master.serves)
            told = times(slave)
            await until(partial(passed, master, told[0][1]))
            ends = LedgerIsKeptRequest(*ledger(slave).ledger.end, 0)
            assert (await made.ask(slave.address, LEDGER_IS_KEPT, ends)).code == ResponseCode.SUCCESS
            assert times(slave) == told, "the log does not have it"
            await master.kill()
        await master.start()
        await trio.sleep(60)
        assert not times(slave)


NOWHERE = 1 << 40
"""No log goes so far: a decision about a half there waits in the ledger."""


async def test_a_decision_outlives_the_masters_disk_until_the_slaves_log_has_it(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await trio.sleep(15)
        await master.kill()
        ledger(slave).decide(0, committed=True)
        await master.start()
        await until(lambda: master.serves)
        assert ledger(master).decision(0)
        await master.kill()
        master.store.content.clear()
        await until(lambda: slave.broker.standing.role.acts)
        assert ledger(slave).decision(0) is True
        await master.start()
        await until(lambda: master.serves)
        assert ledger(master).decision(0), "once more"
        await until(lambda: ledger(master).decision(0) is None)
        await until(lambda: ledger(slave).decision(0) is None)
        assert ledger(slave)._durable_end >= (ledger(master)._settled_end or 1 << 60)
        await slave.kill()
        await slave.start()
        assert ledger(slave).decision(0) is None


async def test_what_is_not_in_the_log_is_forgotten_by_nobody(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        ledger(slave).decide(NOWHERE, committed=False)
        await commit(made, slave, 4)
        await master.start()
        await until(lambda: master.serves)
        assert ledger(slave).ledger.get(OFFSET) is None, "tables have it"
        await trio.sleep(100)
        assert ledger(master).decision(NOWHERE) is ledger(slave).decision(NOWHERE) is False


async def test_what_a_slave_decided_late_is_read_late(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        ledger(slave).decide(NOWHERE, committed=True)
        master.settings["skipPreOnline"] = "true"
        await master.start()
        await until(lambda: master.serves)
        assert ledger(master).decision(NOWHERE) is None
        await trio.sleep(20)
        assert ledger(master).decision(NOWHERE) is True
        ledger(slave).decide(NOWHERE + 1, committed=True)
        await trio.sleep(40)
        assert ledger(master).decision(NOWHERE + 1) is ledger(slave).decision(NOWHERE) is True


def right_begins(node: Node, monkeypatch: pytest.MonkeyPatch, since_ns: int) -> None:
    """It has the right, and had not before."""
    monkeypatch.setattr(type(ledger(node)._right), "since_ns", lambda right, now_ns: since_ns)
    node.broker.parts.right_changed()


async def test_who_begins_to_decide_has_read_what_others_decided(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        ending = master.broker.parts[TransactionsPart]
        await until(lambda: not ending._why_not())
        ledger(slave).decide(NOWHERE, committed=True)
        right_begins(master, monkeypatch, 5)
        assert ending._why_not() == NOT_READ
        assert ledger(master).decision(NOWHERE) is None
        await until(lambda: not ending._why_not(), within_s=1)
        assert ledger(master).decision(NOWHERE) is True


async def test_a_member_that_does_not_answer_is_waited_for_so_long(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        ending, clock = master.broker.parts[TransactionsPart], master.broker.journal.now_ns
        await until(lambda: not ending._why_not())
        call = ledger(master)._client.call

        async def fails(address: str, command: Command, timeout_ms: float | None = None) -> Command:
            if command.code == READ_LEDGER and address == slave.address:
                raise ConnectionClosed(address, "lost")
            return await call(address, command, timeout_ms)

        monkeypatch.setattr(ledger(master)._client, "call", fails)
        began_ns = clock()
        right_begins(master, monkeypatch, began_ns)
        await trio.sleep(29)
        assert ending._why_not() == (
            f"{NOT_READ}: member 1 at {slave.address}: connection to {slave.address} closed: lost")
        await until(lambda: not ending._why_not(), within_s=3)
        assert LEARN_NS <= clock() - began_ns
        assert "decided without what members may have decided before: member 1" in caplog.text


async def test_what_is_in_flight_is_decided_before_others_read(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        _, slave = await pair(made)
        ending = slave.broker.parts[TransactionsPart]._ending
        ending._under_way[7] = cast(Any, None)
        answers: list[Command] = []

        async def reads() -> None:
            answers.append(await made.ask(slave.address, READ_LEDGER, ReadLedgerRequest(0, 0, decided=True)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reads)
            await trio.sleep(1)
            assert not answers
            ledger(slave).decide(7, committed=True)
            ending._under_way.clear()
            ending._none_under_way()
        (entry,), _ = decode(answers[0].body)
        assert (entry.thing.name, entry.value) == ("7", 1)


async def test_a_master_that_has_no_ledger_asks_for_nothing(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        ledger(slave).decide(NOWHERE, committed=True)
        master.settings["enableSlaveActingMaster"] = "false"
        await master.start()
        await until(lambda: master.serves)
        await trio.sleep(20)
        assert ledger(slave).decision(NOWHERE) is True
        await trio.sleep(30)
        assert ledger(slave).decision(NOWHERE) is None


async def test_who_holds_less_of_the_log_forgets_nothing_that_it_says(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        _, slave = await pair(made)
        ledger(slave).decide(NOWHERE, committed=True)
        end = slave.broker.journal.end
        early = await made.ask(slave.address, LEDGER_IS_KEPT, LedgerIsKeptRequest(1 << 50, 9, end + 1))
        assert early.code == ResponseCode.SYSTEM_ERROR and str(early.remark).endswith(f", not up to {end + 1}")
        kept = await made.ask(slave.address, LEDGER_IS_KEPT, LedgerIsKeptRequest(1 << 50, 9))
        assert kept.code == ResponseCode.SUCCESS
        assert ledger(slave).decision(NOWHERE)
        await trio.sleep(15)  # its log is synced
        assert (await made.ask(slave.address, LEDGER_IS_KEPT, LedgerIsKeptRequest(1 << 50, 9, end))).code == 0
        assert ledger(slave).decision(NOWHERE) is None


async def test_pages_that_were_read_before_a_failure_are_kept(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        master, first = await pair(made)
        second = await made.node(**ACTING, **SLAVE | {"brokerId": "2"})
        await until(lambda: second.broker.standing.role.listed
                    and second.broker.journal.end == master.broker.journal.end)
        await trio.sleep(15)
        await master.kill()
        monkeypatch.setattr(ledger_part, "ANSWER_BYTES", 1)
        calls, call = 0, ledger(second)._client.call

        async def fails(address: str, command: Command, timeout_ms: float | None = None) -> Command:
            nonlocal calls
            calls += command.code == READ_LEDGER and address == first.address
            if calls == 2:
                calls += 1
                raise ConnectionClosed(address, "lost")
            return await call(address, command, timeout_ms)

        await trio.sleep(20)
        monkeypatch.setattr(ledger(second)._client, "call", fails)
        for number in range(3):
            ledger(first).decide(number, committed=True)
        await until(lambda: ledger(second).decision(2))
        assert calls > 2
        assert [ledger(second).decision(number) for number in range(3)] == [True] * 3


@asynccontextmanager
async def late(**settings: str) -> AsyncGenerator[tuple[Cluster, Node, Node, int]]:
    """A group at 3 of its queue, whose slave copied the master's last file alone, and acts. Where the queue begins."""
    keys = {"mappedFileSizeCommitLog": str(64 << 10), "offsetCheckInSlave": "true", **settings}
    async with two_groups(1, **keys) as (made, master, slave, _):
        master.groups.find("G")
        while master.broker.journal.end < 64 << 10:
            await made.send(master.address, b"x" * 4_000)
        for number in range(9):
            await made.send(master.address, b"%d" % number)
        await slave.kill()
        slave.files, slave.store = MemoryFiles(), StoreFiles()
        await slave.start()
        assert (await commit(made, master, 3)).code == ResponseCode.SUCCESS
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end
                    and slave.offsets.query("G", "T", 0) == 3)
        await trio.sleep(5)  # until all is flushed
        begin = slave.broker.journal.messages.min_offset(b"T", 0)
        assert begin > 3
        await master.kill()
        await until(lambda: may_deliver(slave), within_s=30)
        yield made, master, slave, begin


async def test_what_a_slave_sends_a_group_over_is_not_passed_over_at_its_master(autojump_clock: MockClock) -> None:
    async with late() as (made, master, slave, begin):
        for asked in (5, 3, 4):
            answer = await made.pull(slave.address, asked)
            assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, str(begin))
        await commit(made, slave, begin)
        assert slave.offsets.query("G", "T", 0) == begin
        slave.offsets.on_moved("new", "T", 0, 0, begin)
        assert [(entry.thing, entry.value) for entry in ledger(slave).ledger.of(Subject.GAP)] == [
            (Thing(Subject.GAP, f"{begin}@T@G", 0), 3)]
        await commit(made, slave, begin + 2)
        await slave.kill()
        await slave.start()
        await until(lambda: slave.broker.standing.role.listed)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 3
        answer = await made.pull(master.address, begin + 2)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3"), "they go back"
        await commit(made, master, 7)
        await trio.sleep(6)
        await master.kill()
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 7, "it was set back once"


async def test_who_does_not_act_or_has_handed_over_notes_no_gap(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        for node in (master, slave):
            node.offsets.commit("G", "T", 0, 1)
            node.offsets.on_moved("G", "T", 0, 1, 5)
        await master.kill()
        await until(lambda: slave.broker.standing.role.acts)
        await made.ask(slave.address, READ_LEDGER, ReadLedgerRequest(0, 0, hand_over=True))
        slave.offsets.on_moved("G", "T", 0, 1, 5)
        assert not list(ledger(slave).ledger.of(Subject.GAP))
        await trio.sleep(11)
        slave.offsets.on_moved("G", "T", 0, 1, 5)
        slave.offsets.on_moved("G", "T", 0, 4, 5)
        (entry,) = ledger(slave).ledger.of(Subject.GAP)
        assert entry.value == 1


async def test_a_slave_that_sends_nobody_on_has_no_gap(autojump_clock: MockClock) -> None:
    async with late(offsetCheckInSlave="false") as (made, master, slave, begin):
        answer = await made.pull(slave.address, 3)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "3")
        await commit(made, slave, begin + 1)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == begin + 1, "as its members want"


async def test_a_group_that_pops_is_not_sent_over_what_its_master_has(autojump_clock: MockClock) -> None:
    async with late() as (made, master, slave, begin):
        popper = Popper(made)
        await until(lambda: not info(slave)["popWaitsFor"])
        (given, *_) = await popper.pop(slave, count=1)
        assert given.offset == begin
        await until(lambda: slave.offsets.query("G", "T", 0) == begin + 1)
        await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 3


@pytest.mark.parametrize(("begin", "wanted", "known", "found"), [
    (5, 3, 9, 3), (5, 3, 2, 2), (5, 3, None, None), (0, 3, 9, 9), (5, -1, 9, 9)])
async def test_a_group_is_set_back_only_over_what_is_here(
        autojump_clock: MockClock, begin: int, wanted: int, known: int | None, found: int | None) -> None:
    """``begin``: where its queue began at the slave. At 0, it held all that is here."""
    async with cluster() as made:
        master, _ = await pair(made)
        if known is not None:
            master.offsets.commit("G", "T", 0, known)
        ledger(master)._take(Entry(Mark(7, 1), Thing(Subject.GAP, f"{begin}@T@G", 0), wanted))
        assert master.offsets.query("G", "T", 0) == found
        assert master.offsets.is_reset("G", "T", 0) is (found == 3)
        ledger(master)._take(Entry(Mark(7, 2), OFFSET, 8))
        assert master.offsets.query("G", "T", 0) == (3 if begin and wanted > 0 else 8)
        ledger(master)._take(Entry(Mark(7, 3), Thing(Subject.GAP, "x@T@G", 0), 1))
        master.offsets.take_reset("G", "T", 0)  # as a pull does
        ledger(master)._forget(ledger(master).ledger.end)
        ledger(master)._take(Entry(Mark(8, 1), OFFSET, 9))
        assert master.offsets.query("G", "T", 0) == 9, "what was forgotten sets nobody back"


async def test_what_a_slave_learns_while_its_master_saves_for_long_is_read_too(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await trio.sleep(15)
        await master.kill()
        assert (await commit(made, slave, 4)).code == ResponseCode.SUCCESS
        waits_s = [HAND_OVER_MS / 1e3 + 2]

        async def slowly(self: LedgerFile) -> None:
            await trio.sleep(waits_s.pop() if waits_s and self is ledger(master).file else 0)
            await synced(self)

        synced = LedgerFile.synced
        monkeypatch.setattr(LedgerFile, "synced", slowly)
        await master.start()
        await until(lambda: ledger(slave).is_handed_over)
        await until(lambda: not ledger(slave).is_handed_over)
        assert not master.serves and (await commit(made, slave, 2)).code == ResponseCode.SUCCESS
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 2
