"""Planted bugs of escape: what is sent to another master, to which, and how an acting slave asks about halves."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

LETTERS: Final = "broker/escape/letters.py"
ASKING: Final = "broker/transactions/asking.py"
SENT: Final = "tests/broker/escape/test_letters.py::"
MASTERS: Final = (SENT + "test_only_masters_of_this_cluster_that_may_be_written_to_and_never_the_own_group",)
WAITS: Final = (SENT + "test_a_timer_that_would_wait_on_here_waits_there",)
PLACE: Final = "tests/broker/transactions/test_in_place.py::"
IN_PLACE: Final = (PLACE + "test_an_acting_slave_asks_as_often_as_its_master_would",)
SENT_ON: Final = (PLACE + "test_halves_of_a_rocketmq_master_are_sent_on",)
STOPS: Final = (PLACE + "test_a_half_that_nobody_takes_stops_those_behind_it",)

PLANTED: Final = (
    Planted("a message escapes to the own group", LETTERS, " and each.broker_name != broker_name and ", " and ",
            MASTERS),
    Planted("a message escapes to another cluster", LETTERS, " and each.cluster in (None, cluster)}", "}", MASTERS),
    Planted("a message escapes to a queue that takes no sends", LETTERS, "if queues.perm & perm and ", "if ", MASTERS),
    Planted("places of this log escape with the message", LETTERS,
            "TIMERS), *(name for name in values if name.startswith(OWN))]",
            "TIMERS)]",
            (SENT + "test_what_says_something_of_this_log_stays_here",)),
    Planted("a timer that escapes is due at once", LETTERS, "    if due_ms:\n", "    if False:\n", WAITS),
    Planted("a message of a level that escapes is due at once", LETTERS, "    if level:\n", "    if False:\n", WAITS),
    Planted("messages of two topics are one when sent again", LETTERS,
            'return f"{message.topic!r}\\0{message.queue_id}', 'return f"{message.queue_id}',
            (SENT + "test_a_key_tells_messages_apart_and_is_the_same_for_one",)),
    Planted("a broker that refused is tried first again", LETTERS,
            "if place.broker_name not in refused],\n", "if True],\n",
            (SENT + "test_a_queue_goes_to_one_queue_and_to_another_broker_where_that_one_refused",)),
    Planted("what no other group takes counts as delivered", "broker/escape/part.py",
            "(PutStatus.SERVICE_NOT_AVAILABLE, remark=why))", "(PutStatus.PUT_OK, remark=why))",
            ("tests/broker/escape/test_part.py::test_what_nobody_takes_is_kept",)),
    Planted("an acting slave asks for a half without end", ASKING, "        self._asked[first] += 1\n", "", IN_PLACE),
    Planted("an acting slave puts halves back", ASKING,
            "        if self._in_place:\n            self._ask_in_place(transaction)\n",
            "        if False:\n            self._ask_in_place(transaction)\n", IN_PLACE),
    Planted("a half escapes as a message of no transaction", LETTERS, "    if is_half:\n", "    if False:\n",
            (SENT + "test_a_half_escapes_as_a_half",)),
    Planted("a half loses its delay as it escapes", LETTERS, "*(() if is_half else TIMERS)", "*TIMERS",
            (SENT + "test_a_half_escapes_as_a_half",)),
    Planted("a slave asks for the halves of a RocketMQ master", "broker/transactions/part.py",
            "sends_on=acts and self._sends_on())", "sends_on=False)", SENT_ON),
    Planted("a slave decides halves that it sends on", "broker/transactions/ending.py",
            "        if stands_in and self.sends_on():\n", "        if False:\n", SENT_ON),
    Planted("a half that nobody takes is passed over", ASKING,
            "        if result.status in STORED:\n            self._progress.commit(",
            "        if True:\n            self._progress.commit(", STOPS),
    Planted("halves are sent on past those that the slave never had", ASKING,
            "        if self._round and (begin := self._place() or 0) < self._feed.half_begin:\n",
            "        if self._round and (begin := self._place() or 0) < 0:\n",
            (PLACE + "test_a_half_that_the_slave_never_had_stops_those_behind_it",)),
    Planted("halves are sent on while their master reads how far", ASKING,
            "        self._held_ns = until_ns\n", "        pass\n", STOPS),
    Planted("the next process of a slave takes its master for ours", "broker/transactions/part.py",
            "(ledger.sends_on() if self._offers is None else not self._offers)", "self._offers is False",
            (PLACE + "test_the_next_process_of_the_slave_goes_on",)),
)
