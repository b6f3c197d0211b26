"""Transactions against brokers in memory: what a block comes to is what consumers get, whatever happens meanwhile."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.client import (
    Client,
    ClientSettings,
    Contradicted,
    Decision,
    DecisionRefused,
    Message,
    MessageIllegal,
    Outcome,
    Received,
    SendFailed,
    SendUnknown,
    Transaction,
    Transactions,
)
from broker.client.outcomes import Heard, of_decision
from remoting import record as codec
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from tests.broker.client.cluster import SILENCE, Cluster, cluster, refusing
from tests.broker.client.halves import HalfBroker

SEND, END, BEAT = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.HEART_BEAT
COMMIT, ROLLBACK, UNDECIDED = Decision.COMMIT, Decision.ROLLBACK, Decision.UNDECIDED
ORDER = Message("orders", b"2 apples", keys=["42"])


@attrs.define
class World:
    """One group, one client with transactions, and what its checker says."""

    made: Cluster
    broker: HalfBroker
    client: Client
    says: dict[str, Decision] = attrs.field(factory=dict)
    """By message id; others are rolled back."""
    checked: list[str] = attrs.field(factory=list)
    transactions: Transactions = attrs.field(init=False)
    lives: int = 1

    async def check(self, message: Received) -> Decision:
        self.checked.append(message.message_id)
        return self.says.get(message.message_id, ROLLBACK)

    def kill(self) -> None:
        self.made.kill(f"a:{self.lives}")

    async def replace(self) -> HalfBroker:
        """Another master, with what the one before held."""
        self.lives += 1
        self.broker = HalfBroker("a", self.broker.halves)
        await self.made.start(f"a:{self.lives}", self.broker)
        self.made.name_server.set("orders", {"a": {0: f"a:{self.lives}"}})
        return self.broker

    async def settle(self) -> None:
        """Until the broker has nothing left to ask."""
        with trio.fail_after(30):
            while self.broker.halves.open:
                await trio.sleep(1)
                self.broker.ask()
                await wait_all_tasks_blocked()

    @property
    def finals(self) -> list[str]:
        return self.broker.halves.finals


@asynccontextmanager
async def world(
    settings: ClientSettings | None = None, checker: Callable[[World], Any] | None = None, **rest: Any,
) -> AsyncGenerator[World, None]:
    async with cluster("a") as made:
        made.kill("a:1")
        broker = HalfBroker("a")
        await made.start("a:1", broker)
        async with made.client(settings=settings) as client:
            it = World(made, broker, client)
            async with client.transactions(checker(it) if checker else it.check, **rest) as it.transactions:
                yield it


# --- the plain ways ------------------------------------------------------------------------------------------


async def test_a_block_that_returns_commits(autojump_clock: MockClock) -> None:
    async with world() as it:
        async with it.transactions.begin(ORDER) as transaction:
            assert it.broker.halves.open == [0] and not it.finals
            assert transaction.open
        assert it.finals == [transaction.message_id] and transaction.outcome is Outcome.CONFIRMED
        (fields,) = it.broker.asked(SEND)
        assert int(fields["f"]) & codec.PREPARED
        properties = codec.decode_properties(fields["i"].encode())
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "producers")
        (ended,) = it.broker.asked(END)
        assert (ended["commitOrRollback"], ended["fromTransactionCheck"]) == ("8", "false")
        assert not it.checked


async def test_a_block_that_raises_rolls_back_and_raises_the_same(autojump_clock: MockClock) -> None:
    async with world() as it:
        error = KeyError("no such customer")
        with pytest.raises(KeyError) as raised:
            async with it.transactions.begin(ORDER) as transaction:
                raise error
        assert raised.value is error and transaction.decision is ROLLBACK
        await wait_all_tasks_blocked()
        assert transaction.outcome is Outcome.CONFIRMED and not it.finals and not it.broker.halves.open


async def test_a_block_that_is_cancelled_rolls_back(autojump_clock: MockClock) -> None:
    async with world() as it:
        with trio.move_on_after(1):
            async with it.transactions.begin(ORDER):
                await trio.sleep_forever()
        await wait_all_tasks_blocked()
        assert it.broker.halves.decided == {0: ROLLBACK}


async def test_everything_around_it_is_cancelled_and_it_is_rolled_back_all_the_same(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        made.kill("a:1")
        broker = HalfBroker("a")
        await made.start("a:1", broker)
        with trio.move_on_after(1):
            async with made.client() as client, client.transactions(no_checks) as transactions:
                async with transactions.begin(ORDER):
                    await trio.sleep_forever()
        assert broker.halves.decided == {0: ROLLBACK}


async def no_checks(message: Received) -> Decision:
    raise AssertionError(f"asked for {message}")


async def test_a_block_may_decide_before_its_end(autojump_clock: MockClock) -> None:
    async with world() as it:
        async with it.transactions.begin(ORDER) as one:
            one.rollback()
            one.rollback()
            await wait_all_tasks_blocked()
            assert it.broker.halves.decided == {0: ROLLBACK}
            with pytest.raises(Contradicted, match="COMMIT follows ROLLBACK"):
                one.commit()
            with pytest.raises(Contradicted, match="left after ROLLBACK"):
                one.leave()
        with pytest.raises(KeyError):  # noqa: PT012  # the block raises
            async with it.transactions.begin(ORDER) as two:
                two.commit()
                raise KeyError
        await wait_all_tasks_blocked()
        assert it.finals == [two.message_id] and "COMMIT" in repr(two)


async def test_a_block_that_does_not_know_leaves_it_to_the_checker(autojump_clock: MockClock) -> None:
    async with world() as it:
        async with it.transactions.begin(ORDER) as one:
            one.leave()
        with pytest.raises(TimeoutError):  # noqa: PT012  # the block raises
            async with it.transactions.begin(ORDER) as two:
                two.leave()
                raise TimeoutError
        assert not it.broker.halves.ended and (one.outcome, two.outcome) == (None, None)
        it.says[two.message_id] = COMMIT
        await it.settle()
        assert it.finals == [two.message_id] and sorted(it.checked) == [one.message_id, two.message_id]
        with pytest.raises(Contradicted):
            one.commit()
        two.commit()
        assert two.outcome is Outcome.LEFT_TO_CHECK and it.finals == [two.message_id]


async def test_many_at_once(autojump_clock: MockClock) -> None:
    async with world() as it:
        it.broker.delay_ms = 20
        kept: list[str] = []

        async def one(number: int) -> None:
            async with it.transactions.begin(ORDER) as transaction:
                if number % 3:
                    kept.append(transaction.message_id)
                else:
                    transaction.rollback()

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(one, number)
        assert sorted(it.finals) == sorted(kept) and len(kept) == 200 and not it.broker.halves.open


@pytest.mark.parametrize("message", [
    Message("orders", b"x", delay=dt.timedelta(1)), Message("orders", b"x", delay_level=1), Message("orders", b"")])
async def test_illegal_halves_do_not_leave(message: Message, autojump_clock: MockClock) -> None:
    async with world() as it:
        with pytest.raises(MessageIllegal):
            async with it.transactions.begin(message):
                raise AssertionError("its half is nowhere")
        assert not it.broker.asked(SEND)


async def test_how_long_a_broker_is_not_to_ask(autojump_clock: MockClock) -> None:
    async with world() as it:
        async with it.transactions.begin(ORDER, check_after=dt.timedelta(minutes=2)):
            pass
        (fields,) = it.broker.asked(SEND)
        assert codec.decode_properties(fields["i"].encode())["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "120"
        with pytest.raises(MessageIllegal, match="a second or more"):
            async with it.transactions.begin(ORDER, check_after=dt.timedelta(milliseconds=999)):
                pass


async def test_a_client_has_one_checker(autojump_clock: MockClock) -> None:
    async with world() as it:
        with pytest.raises(ValueError, match="has a checker already"):
            async with it.client.transactions(no_checks):
                pass


# --- every order ---------------------------------------------------------------------------------------------

ENDINGS = ("returns", "raises", "commits", "rolls back", "leaves", "is cancelled")
DISTURBANCES = ("asked", "failover", "deaf", "hearing")


def orders() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    before = [order for length in range(3) for order in product(DISTURBANCES, repeat=length)]
    behind = [order for length in range(2) for order in product(DISTURBANCES, repeat=length)]
    yield from product(ENDINGS, before, behind)


async def disturb(it: World, what: str) -> None:
    """One thing that happens, and all that follows from it at once."""
    if what == "asked":
        it.broker.ask()
    elif what == "failover":
        it.kill()
        await it.replace()
    elif what == "deaf":
        it.broker.refuse = lambda command: SILENCE if command.code == END else None
    else:
        it.broker.refuse = lambda _: None
    await wait_all_tasks_blocked()


async def end(transaction: Transaction, ending: str) -> None:
    match ending:
        case "raises":
            raise KeyError
        case "commits":
            transaction.commit()
        case "rolls back":
            transaction.rollback()
        case "leaves":
            transaction.leave()
        case "is cancelled":
            await trio.sleep_forever()


@pytest.mark.parametrize("ending", ENDINGS)
async def test_in_every_order_one_message_for_a_commit_and_none_for_a_rollback(
    ending: str, autojump_clock: MockClock,
) -> None:
    """Asked, its master lost, its decision not heard: before it decides and behind it. A broker that is told twice
    delivers twice, and none is."""
    ran = 0
    for each, before, behind in orders():
        if each != ending:
            continue
        ran += 1
        async with world(ClientSettings(send_timeout_ms=500)) as it:
            found: list[Transaction] = []
            with trio.CancelScope() as scope:
                try:
                    async with it.transactions.begin(ORDER) as transaction:
                        found.append(transaction)
                        if ending == "leaves":
                            it.says[transaction.message_id] = COMMIT
                        for what in before:
                            await disturb(it, what)
                        if ending == "is cancelled":
                            scope.cancel()
                        await end(transaction, ending)
                except KeyError:
                    assert ending == "raises"
            for what in behind:
                await disturb(it, what)
            it.broker.refuse = lambda _: None
            await it.settle()
            (transaction,) = found
            committed = ending in ("returns", "commits", "leaves")
            assert it.finals == [transaction.message_id] * committed, (before, behind)
            said = {decision for _, decision in it.broker.halves.ended}
            assert said == {COMMIT if committed else ROLLBACK}, (before, behind)
            assert it.checked == [transaction.message_id] * (ending == "leaves"), (before, behind)
    assert ran == 21 * 5


# --- what the broker answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "remark", "ended"), [
    (0, None, Heard.CONFIRMED), (11, "slave mode", Heard.AGAIN), (2, "busy", Heard.AGAIN), (14, "not yet", Heard.AGAIN),
    (1500, None, Heard.AGAIN), (1, "in-sync replicas not enough", Heard.AGAIN), (604, None, Heard.LEFT),
    (10, None, Heard.LEFT), (12, None, Heard.LEFT), (1, "NullPointerException", Heard.LEFT), (1, None, Heard.LEFT),
    (1, "Find prepared transaction message failed", Heard.REFUSED), (1, "The producer group wrong", Heard.REFUSED),
    (1, "The transaction state table offset wrong", Heard.REFUSED), (1, "The commit log offset wrong", Heard.REFUSED),
    (13, None, Heard.REFUSED), (16, None, Heard.REFUSED), (9_999, None, Heard.REFUSED),
    (604, "the transaction 7F00 was decided before: rolled back", Heard.CONTRADICTED),
    (1, "it was decided before", Heard.LEFT),
])
def test_what_an_answer_to_a_decision_means(code: int, remark: str | None, ended: Heard) -> None:
    assert of_decision(code, remark) is ended


async def test_a_commit_that_no_broker_takes_is_raised(autojump_clock: MockClock) -> None:
    async with world() as it:
        it.broker.refuse = refusing(END, ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        with pytest.raises(DecisionRefused, match="Find prepared") as refused:
            async with it.transactions.begin(ORDER) as transaction:
                pass
        assert refused.value.code == 1 and transaction.outcome is Outcome.REFUSED
        async with it.transactions.begin(ORDER) as rolled_back:
            rolled_back.rollback()
        assert rolled_back.outcome is Outcome.LEFT_TO_CHECK, "nobody sees it, and nobody has to care"


async def test_a_decision_that_the_broker_has_otherwise_is_raised(autojump_clock: MockClock) -> None:
    async with world() as it:
        it.broker.refuse = refusing(END, 604, "the transaction 7F00 was decided before: committed")
        with pytest.raises(Contradicted, match="decided before: committed"):
            async with it.transactions.begin(ORDER) as transaction:
                transaction.rollback()
        assert transaction.outcome is Outcome.REFUSED


@pytest.mark.parametrize("answer", [604, 1, None])
async def test_a_decision_that_may_have_been_heard_is_told_once_and_left_to_the_check(
    answer: int | None, autojump_clock: MockClock,
) -> None:
    async with world() as it:
        it.broker.refuse = refusing(END, answer) if answer is not None else (
            lambda command: SILENCE if command.code == END else None)
        async with it.transactions.begin(ORDER) as transaction:
            pass
        assert transaction.outcome is Outcome.LEFT_TO_CHECK and len(it.broker.asked(END)) == 1
        it.broker.refuse = lambda _: None
        await it.settle()
        assert it.finals == [transaction.message_id] and not it.checked
        assert it.broker.asked(END)[-1]["fromTransactionCheck"] == "true"


async def test_a_commit_that_was_heard_before_the_connection_broke_is_not_told_again(
    autojump_clock: MockClock,
) -> None:
    async with world() as it:
        def hear(command: Command) -> Command | None:
            if command.code != END:
                return None
            it.broker._end(None, command)  # type: ignore[arg-type]
            for connection in it.broker.connections.values():
                connection.close("it breaks")
            return SILENCE

        it.broker.refuse = hear
        async with it.transactions.begin(ORDER) as transaction:
            await wait_all_tasks_blocked()
        assert transaction.outcome is Outcome.LEFT_TO_CHECK and it.finals == [transaction.message_id]


async def test_a_decision_goes_to_the_new_master(autojump_clock: MockClock) -> None:
    """The old one is killed under the block; then its successor is none yet for a while."""
    async with world() as it:
        async with it.transactions.begin(ORDER) as transaction:
            it.kill()
            it.made.name_server.set("orders", {"a": {1: "a:9"}})
            await wait_all_tasks_blocked()

            async def elect() -> None:
                await trio.sleep(0.5)
                new = await it.replace()
                new.refuse = refusing(END, ResponseCode.SLAVE_NOT_AVAILABLE)
                await trio.sleep(0.5)
                new.refuse = lambda _: None

            it.made.net.nursery.start_soon(elect)
        assert transaction.outcome is Outcome.CONFIRMED and it.finals == [transaction.message_id]
        assert it.broker.asked(END)[-1]["fromTransactionCheck"] == "false"


async def test_nobody_is_master_in_time_and_the_check_decides(autojump_clock: MockClock) -> None:
    """The new master learns of the producer by itself, and hears the same."""
    async with world() as it:
        async with it.transactions.begin(ORDER) as transaction:
            it.kill()
            it.made.name_server.set("orders", {"a": {1: "a:9"}})
        assert transaction.outcome is Outcome.LEFT_TO_CHECK
        broker = await it.replace()
        await trio.sleep(2.5)
        assert broker.connections.keys() == {"client"}, "greeted before its route was due"
        await it.settle()
        assert it.finals == [transaction.message_id] and not it.checked


async def test_a_master_that_comes_back_at_its_address_is_greeted(autojump_clock: MockClock) -> None:
    async with world(topics=["orders"]) as it:
        it.kill()
        await trio.sleep(5)
        broker = HalfBroker("a", it.broker.halves)
        await it.made.start("a:1", broker)
        await trio.sleep(2.5)
        assert broker.connections.keys() == {"client"}


async def test_a_commit_is_not_taken_back_by_a_cancellation(autojump_clock: MockClock) -> None:
    """The block ended; only the waiting for its confirmation is cancelled."""
    async with world() as it:
        it.broker.refuse = lambda command: SILENCE if command.code == END else None
        with trio.move_on_after(0.1) as scope:
            async with it.transactions.begin(ORDER) as transaction:
                pass
        assert scope.cancelled_caught and transaction.decision is COMMIT
        it.broker.refuse = lambda _: None
        await it.settle()
        assert it.finals == [transaction.message_id]


async def test_the_end_of_the_client_waits_a_second_for_what_is_decided(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        made.kill("a:1")
        broker = HalfBroker("a")
        await made.start("a:1", broker)
        async with made.client() as client, client.transactions(no_checks) as transactions:
            with pytest.raises(KeyError):  # noqa: PT012  # the block raises
                async with transactions.begin(ORDER) as transaction:
                    broker.refuse = lambda command: SILENCE if command.code == END else None
                    raise KeyError
            began = trio.current_time()
        assert transaction.outcome is Outcome.LEFT_TO_CHECK and trio.current_time() - began < 2.5


# --- halves of which nobody knows ----------------------------------------------------------------------------


async def test_a_half_that_is_stored_nowhere_runs_no_block(autojump_clock: MockClock) -> None:
    async with world() as it:
        it.broker.refuse = refusing(SEND, ResponseCode.NO_PERMISSION, "sending transaction message is forbidden")
        with pytest.raises(SendFailed, match="forbidden"):
            async with it.transactions.begin(ORDER):
                raise AssertionError("its half is nowhere")


async def test_a_half_that_may_be_stored_is_never_committed_beside_its_copy(autojump_clock: MockClock) -> None:
    """The first one is stored, and its answer is lost: the second one has another id, and the first is rolled back."""
    async with world() as it:
        lost: list[Command] = []

        def lose(command: Command) -> Command | None:
            if command.code != SEND or lost:
                return None
            lost.append(command)
            it.broker._send_half(next(iter(it.broker.connections.values())), command)
            return response(command, ResponseCode.SYSTEM_ERROR, remark="NullPointerException")

        await it.client.send(Message("orders", b"known by now"))
        it.broker.refuse = lose
        async with it.transactions.begin(ORDER) as transaction:
            pass
        assert len(it.broker.halves.records) == 2 and it.broker.halves.id_of(0) != transaction.message_id
        await it.settle()
        assert it.finals == [transaction.message_id] and not it.checked
        assert Counter(it.broker.halves.ended)[it.broker.halves.id_of(0), ROLLBACK] == 1


@pytest.mark.parametrize("code", [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT])
async def test_a_half_that_is_not_safe_is_rolled_back_at_once(code: int, autojump_clock: MockClock) -> None:
    """The broker says where it is; the block does not run."""
    async with world() as it:
        def unsafe(command: Command) -> Command | None:
            if command.code != SEND:
                return None
            answer = it.broker._send_half(None, command)  # type: ignore[arg-type]
            answer.code, answer.remark = code, "it took too long"
            return answer

        it.broker.refuse = unsafe
        with pytest.raises(SendUnknown) as unknown:
            async with it.transactions.begin(ORDER):
                raise AssertionError("its half may be lost")
        assert unknown.value.place is not None and unknown.value.place.queue_offset == 0
        await wait_all_tasks_blocked()
        assert it.broker.halves.decided == {0: ROLLBACK}


async def test_a_half_whose_sending_is_cancelled_is_rolled_back_when_it_is_asked_for(autojump_clock: MockClock) -> None:
    async with world() as it:
        await it.client.send(Message("orders", b"known by now"))

        def silent(command: Command) -> Command | None:
            if command.code != SEND:
                return None
            it.broker._send_half(None, command)  # type: ignore[arg-type]
            return SILENCE

        it.broker.refuse = silent
        with trio.move_on_after(0.1):
            async with it.transactions.begin(ORDER):
                raise AssertionError("nobody knows of its half")
        it.broker.refuse = lambda _: None
        await it.settle()
        assert it.broker.halves.decided[1] is ROLLBACK and not it.checked


async def test_an_answer_without_a_place_is_no_half(autojump_clock: MockClock) -> None:
    async with world(ClientSettings(retries=0)) as it:
        it.broker.refuse = lambda command: response(command) if command.code == SEND else None
        with pytest.raises(SendUnknown, match="says no place"):
            async with it.transactions.begin(ORDER):
                raise AssertionError("nobody knows where its half is")


# --- the checker ---------------------------------------------------------------------------------------------


async def left(it: World, count: int = 1) -> list[str]:
    """Halves of an earlier life: nobody here knows of them."""
    found = []
    for _ in range(count):
        async with it.transactions.begin(ORDER) as transaction:
            transaction.leave()
        found.append(transaction.message_id)
    return found


async def test_the_checker_sees_the_message_as_it_was_sent(autojump_clock: MockClock) -> None:
    seen: list[Received] = []

    async def check(message: Received) -> Decision:
        seen.append(message)
        return COMMIT

    async with world(ClientSettings(compress_from_bytes=10), lambda _: check) as it:
        async with it.transactions.begin(Message("orders", b"." * 100, tag="new", keys=["42"])) as transaction:
            transaction.leave()
        await it.settle()
        (message,) = seen
        assert (message.message_id, message.topic) == (transaction.message_id, "orders")
        assert (message.body, message.tag, message.keys) == (b"." * 100, "new", ["42"])


@pytest.mark.parametrize("answer", [KeyError("the database is away"), None, 3, UNDECIDED])
async def test_a_checker_that_does_not_know_is_asked_again(answer: object, autojump_clock: MockClock) -> None:
    """One that raises, or returns what is no decision, breaks nothing."""
    answers: list[object] = [answer, answer, COMMIT]

    async def check(_: Received) -> Decision:
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said  # type: ignore[return-value]

    async with world(checker=lambda _: check) as it:
        (message_id,) = await left(it)
        await it.settle()
        assert it.finals == [message_id] and not answers


async def test_a_transaction_is_at_the_checker_once(autojump_clock: MockClock) -> None:
    """However often it is asked for meanwhile; the answer is to the last question."""
    running = 0

    async def check(_: Received) -> Decision:
        nonlocal running
        running += 1
        await trio.sleep(10)
        return COMMIT

    async with world(checker=lambda _: check) as it:
        (message_id,) = await left(it)
        for _ in range(5):
            it.broker.ask()
            await trio.sleep(1)
        await trio.sleep(10)
        assert running == 1 and it.finals == [message_id] and not it.broker.halves.open


async def test_so_many_checkers_run_at_once(autojump_clock: MockClock) -> None:
    running = most = 0

    async def check(_: Received) -> Decision:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return COMMIT

    async with world(checker=lambda _: check, checks_at_once=3) as it:
        await left(it, 10)
        it.broker.ask()
        await trio.sleep(5)
        assert most == 3 and len(it.finals) == 10


async def test_checks_beyond_what_waits_are_left_for_the_next_round(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.client.transactions.CHECKS_MOST", 4)

    async def check(_: Received) -> Decision:
        await trio.sleep(0.5)
        return COMMIT

    async with world(checker=lambda _: check) as it:
        await left(it, 10)
        it.broker.ask()
        await trio.sleep(2)
        assert len(it.finals) == 4
        await it.settle()
        assert len(set(it.finals)) == len(it.finals) == 10


async def test_what_the_block_said_meanwhile_counts(autojump_clock: MockClock) -> None:
    """It had left it, and then decided, while the checker looked."""
    async def check(_: Received) -> Decision:
        await trio.sleep(5)
        return ROLLBACK

    async with world(checker=lambda _: check) as it:
        async with it.transactions.begin(ORDER) as transaction:
            transaction.leave()
            await trio.sleep(1)
            it.broker.refuse = lambda command: SILENCE if command.code == END else None
            it.broker.ask()
            await trio.sleep(1)
            transaction.commit()
        it.broker.refuse = lambda _: None
        await trio.sleep(10)
        await it.settle()
        assert set(it.broker.halves.ended) == {(transaction.message_id, COMMIT)}


async def test_checks_of_another_group_and_without_a_checker_are_not_answered(autojump_clock: MockClock) -> None:
    async with world() as it:
        await left(it)
        record = it.broker.halves.records[0]
        record.properties = record.properties.replace(b"producers", b"others")
        it.broker.ask()
        await trio.sleep(1)
        assert not it.checked and not it.broker.asked(END)
        record.properties = record.properties.replace(b"others", b"producers")
        await it.settle()
        assert len(it.checked) == 1
        await left(it)
    async with cluster("b") as made:
        halves = it.broker.halves
        made.kill("b:1")
        broker = await made.start("b:1", HalfBroker("b", halves))
        async with made.client() as client:
            await client.send(Message("orders", b"x"))
            await trio.sleep(1)
            assert isinstance(broker, HalfBroker) and broker.ask() == 1
            await trio.sleep(1)
            assert not broker.asked(END)


async def test_brokers_of_named_topics_may_ask_before_anything_is_sent(autojump_clock: MockClock) -> None:
    async with world(topics=["orders", "nowhere"]) as it:
        await wait_all_tasks_blocked()
        assert it.broker.connections.keys() == {"client"} and not it.broker.asked(SEND)


async def test_an_answer_to_who_is_gone_is_given_to_the_next_that_asks(autojump_clock: MockClock) -> None:
    async def check(_: Received) -> Decision:
        await trio.sleep(3)
        return COMMIT

    async with world(checker=lambda _: check) as it:
        (message_id,) = await left(it)
        it.broker.ask()
        await trio.sleep(1)
        it.kill()
        await it.replace()
        await trio.sleep(3)
        assert not it.finals
        await it.settle()
        assert it.finals == [message_id]
