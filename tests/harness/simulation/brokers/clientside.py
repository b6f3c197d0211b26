"""Bugs planted in what the client decides of transactions; its own tests must notice each."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

_DECISIONS = "broker/client/decisions.py"
_TRANSACTIONS = "broker/client/transactions.py"
_ORDERS = "tests/broker/client/test_decisions.py::test_in_every_order_nobody_is_told_both"
_WHOLE = ("tests/broker/client/test_transactions.py::"
          "test_in_every_order_one_message_for_a_commit_and_none_for_a_rollback")
_TESTS = "tests/broker/client/test_transactions.py::"

PLANTED: Final = (
    Planted("a later decision takes the place of the first", _DECISIONS,
            "        elif before is not decision:\n", "        elif False:\n", (_ORDERS,)),
    Planted("a broker that asks under a block hears what is on its way", _DECISIONS,
            "        if message_id in self._busy:\n", "        if False:\n", (_ORDERS,)),
    Planted("a commit is told again where it was confirmed", _DECISIONS,
            "return Decision.UNDECIDED if twice else decision", "return decision", (_ORDERS,)),
    Planted("a block that raises commits", _TRANSACTIONS,
            "                transaction.rollback()\n            raise",
            "                transaction.commit()\n            raise", (_WHOLE,)),
    Planted("the end goes to where the half was, not where the broker put it", _TRANSACTIONS,
            "                self._moved[message.message_id] = header\n", "                pass\n", (_WHOLE,)),
    Planted("a half that may be stored is forgotten", _TRANSACTIONS,
            "        self._decisions.decide(message_id, Decision.ROLLBACK)\n", "        pass\n",
            (_TESTS + "test_a_half_that_may_be_stored_is_never_committed_beside_its_copy",)),
    Planted("a half that may be stored is sent again under its id", "broker/client/producing.py",
            "                    resend_unknown=False)\n", "                    resend_unknown=True)\n",
            (_TESTS + "test_a_half_that_may_be_stored_is_never_committed_beside_its_copy",)),
    Planted("an end that may have been heard is told again", _TRANSACTIONS,
            "                    return Heard.LEFT, None\n                else:",
            "                    continue\n                else:",
            (_TESTS + "test_a_commit_that_was_heard_before_the_connection_broke_is_not_told_again",)),
)
