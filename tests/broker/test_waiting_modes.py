"""What a lost master takes with it of what waits, mode by mode, by whole brokers on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest
import trio

from broker.timer.part import TimersPart
from broker.transactions.part import TransactionsPart
from harness.simulation.worlds.brokers import cluster, new_master, three, until
from remoting.codes import ResponseCode
from remoting.record import COMMIT
from tests.broker.timer.test_timers import send
from tests.broker.transactions.world import producer

DEFAULT: Mapping[str, str] = {"allAckInSyncStateSet": "false"}
ALL: Mapping[str, str] = {"allAckInSyncStateSet": "true"}


@pytest.mark.parametrize(("mode", "acknowledges"), [
    (DEFAULT, True), (ALL, False), ({**ALL, "minInSyncReplicas": "2"}, False)],
    ids=["default mode", "all in sync", "two in sync"])
async def test_what_a_lost_master_takes_with_it(
        autojump_clock: trio.abc.Clock, mode: Mapping[str, str], acknowledges: bool) -> None:
    """A timer, a half and a commit that no slave has: in the default mode they were acknowledged, and are gone; in the
    others nobody was told that they are there. What all have is kept in each of them."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **mode)
        async with producer(made, master) as old, trio.open_nursery() as nursery:
            assert (await send(made, master, b"held", "U0", TIMER_DELAY_SEC=60)).code == ResponseCode.SUCCESS
            before = await old.half(unique="U1")
            await trio.sleep(5)
            for node in others:
                made.network.silent.add(node.address)
            codes: dict[str, int] = {}

            async def tell(what: str, ask: Callable[[], Awaitable[object]]) -> None:
                answer = await ask()
                codes[what] = answer.code  # type: ignore[attr-defined]

            end = master.broker.journal.end
            nursery.start_soon(tell, "timer", lambda: send(made, master, b"alone", "U2", TIMER_DELAY_SEC=60))
            nursery.start_soon(tell, "half", lambda: old.send(unique="U3"))
            nursery.start_soon(tell, "commit", lambda: old.end(before, COMMIT))
            await trio.sleep(1)
            assert master.broker.journal.end > end, "they are in the master's log"
            assert codes == (dict.fromkeys(("timer", "half", "commit"), 0) if acknowledges else {})
            nursery.cancel_scope.cancel()
        await master.kill()
        made.network.silent.clear()
        second = await new_master(*others)
        timers, transactions = second.broker.parts[TimersPart], second.broker.parts[TransactionsPart]
        await until(lambda: timers._store.pending == 1 and transactions._open)
        assert [each.half.unique for each in transactions.halves] == ["U1"], "its commit is asked for again"
        async with producer(made, second, "q") as new:
            await new.commit(before)
            assert transactions._ending.counters.committed == {"T": 1}
