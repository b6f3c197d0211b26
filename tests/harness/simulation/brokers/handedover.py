"""Planted bugs of siblings: which record goes to a master of the same container, and what that makes of it."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

HANDOVER: Final = "broker/siblings/handover.py"
PART: Final = "broker/siblings/part.py"
CORE: Final = "tests/broker/siblings/test_handover.py::"
WHOLE: Final = "tests/broker/siblings/test_part.py::"
SOCKETS: Final = "tests/broker/siblings/test_sockets.py::"
AS_IT_IS: Final = (CORE + "test_the_record_stays_as_it_is_but_for_places_of_its_old_log",)
FOREIGN: Final = (CORE + "test_a_slave_of_another_cluster_or_of_the_own_group_is_refused",)

PLANTED: Final = (
    Planted("places of the old log are handed to a sibling", HANDOVER, " if not pair.startswith(_OWN))", ")", AS_IT_IS),
    Planted("a commit handed to a sibling decides a half there", HANDOVER, "~(NOTED | ROLLBACK)", "~NOTED", AS_IT_IS),
    Planted("a half is handed to a sibling", HANDOVER, "topic in _STAYS or ", "",
            (CORE + "test_records_of_a_groups_own_are_for_its_master",)),
    Planted("a sibling takes records of its own group", HANDOVER, "if asked.broker_name == broker_name:", "if False:",
            FOREIGN),
    Planted("a sibling stores records in queues that the topic has not", HANDOVER,
            "queue_id=message.queue_id % topic.write_queue_nums, ", "",
            (CORE + "test_the_master_stores_it_in_a_queue_that_the_topic_has_there",)),
    Planted("a sibling takes timers without a wheel", HANDOVER, "if name == TIMER and not timers:", "if False:",
            (CORE + "test_where_no_consumer_would_find_it_it_is_refused",)),
    Planted("a sibling takes a delay level that it has not", HANDOVER, "not 0 <= message.queue_id < levels:", "False:",
            (CORE + "test_where_no_consumer_would_find_it_it_is_refused",)),
    Planted("one refused record keeps others from a sibling", HANDOVER, "if code not in _OF_ONE:", "if True:",
            (CORE + "test_siblings_are_asked_in_one_order_and_not_at_once_again",)),
    Planted("the network comes before a sibling", "broker/escape/part.py", "        if self.siblings is not None:\n",
            "        if self.siblings is not None and not self._enabled:\n",
            (WHOLE + "test_a_sibling_comes_first_and_the_network_next",)),
    Planted("a sibling that stored nothing counts as one that did", PART, "            if code in _STORED:\n",
            "            if code is not None:\n", (WHOLE + "test_a_master_that_may_not_write_is_passed_over",)),
    Planted("any user may connect to the socket of a broker", "broker/siblings/sockets.py",
            "if user == os.geteuid():", "if True:", (SOCKETS + "test_another_user_is_refused",)),
)
