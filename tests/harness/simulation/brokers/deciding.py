"""Planted bugs of transactions: who decides them, who is asked, and what a new master knows of that."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

ENDING: Final = "broker/transactions/ending.py"
ASKING: Final = "broker/transactions/asking.py"
RECORDS: Final = "broker/transactions/records.py"

PLANTED: Final = (
    Planted("who commits twice has two messages", ENDING,
            "        if transaction is None and half.queue_offset < self._feed.half_end:\n",
            "        if False:\n", ("INV_B42", "INV_B43"), "transactions"),
    Planted("of a transaction that ended, what is no longer remembered is done", ENDING,
            "            if ended == decision:\n", "            if ended in (decision, records.UNKNOWN):\n",
            ("INV_B53",), "transactions"),
    Planted("a decision that is under way is not known", ENDING,
            "        under_way = self._under_way.get(first)\n        if", "        under_way = None\n        if",
            ("INV_B42", "INV_B43"), "transactions"),
    Planted("a rollback delivers the message", ENDING,
            "        if decision is COMMITTED:\n            ruled", "        if True:\n            ruled", ("INV_B42",),
            "transactions"),
    Planted("a commit delivers nothing", ENDING,
            "            final = ruled\n", "            pass\n", ("INV_B44",), "transactions"),
    Planted("a decision that could not be stored is for ever under way", ENDING,
            "                del self._under_way[first]\n        for", "                pass\n        for",
            ("INV_B44",), "transactions"),
    Planted("nobody is asked for a half", "broker/transactions/checking.py",
            "limits.transaction_time_out else Verdict.ASK\n", "limits.transaction_time_out else Verdict.WAIT\n",
            ("INV_B44",), "transactions"),
    Planted("a half that could not be put back is never asked for again", ASKING,
            "            del self._moving[transaction.first]\n", "            pass\n", ("INV_B44",), "transactions"),
    Planted("final messages go to the first queue", RECORDS,
            "record.message, topic=half.topic.encode(), queue_id=half.queue_id, properties=properties,\n"
            "        sys_flag=record.message.sys_flag & ~ROLLBACK | COMMIT",
            "record.message, topic=half.topic.encode(), queue_id=0, properties=properties,\n"
            "        sys_flag=record.message.sys_flag & ~ROLLBACK | COMMIT", ("INV_B38",), "transactions"),
    Planted("a start forgets the transactions that are open", "broker/transactions/feeding.py",
            "        self._to_load = deque(kept.open)\n", "        self._to_load = deque()\n", ("INV_B44",),
            "transactions"),
)
