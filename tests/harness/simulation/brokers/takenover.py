"""Planted bugs of groups without controllers that their simulation notices: rights, ledgers and locks."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

RIGHT: Final = "broker/acting/right.py"
LEDGER: Final = "broker/ledger/part.py"
ENDING: Final = "broker/transactions/ending.py"
ACTING: Final = "acting"
LOCKS: Final = "locks"

PLANTED: Final = (
    Planted("one name server less than half lets a slave deliver", RIGHT,
            "        return 2 * self._good(now_ns) > len(self._servers)\n",
            "        return 2 * self._good(now_ns) + 2 > len(self._servers)\n", ("INV_B56",), ACTING),
    Planted("a slave delivers while its master is heard", RIGHT,
            "        if left_ns > 0 and self._hears_master():\n", "        if False:\n", ("INV_B56",), ACTING),
    Planted("a slave that is asked for its ledger goes on to deliver", RIGHT,
            "        if self._hands_over():\n", "        if False:\n", ("INV_B57",), ACTING),
    Planted("a master reads no ledger", LEDGER,
            "        entries = list(found.after())\n", "        entries = []\n", ("INV_B57",), ACTING),
    Planted("one name server lets a master deliver", RIGHT,
            "return bool(self._servers) and 2 * self._good(now_ns) >= len(self._servers)",
            "return bool(self._servers) and self._good(now_ns) >= 1", ("INV_B56",), ACTING),
    Planted("a new run counts at once", RIGHT,
            "_Run(now_ns + self._right_ns, 0)", "_Run(now_ns, 0)", ("INV_B56",), ACTING),
    Planted("an answer gives the right without end", RIGHT,
            "return 0 if MASTER_ID in addresses else asked_ns + self._right_ns",
            "return 0 if MASTER_ID in addresses else asked_ns + (1 << 60)", ("INV_B56",), ACTING),
    Planted("what a slave decided is decided again", ENDING,
            "        if decided is not None:\n            if decided", "        if False:\n            if decided",
            ("INV_B59",), ACTING),
    Planted("a slave decides again what its master's mark says", ENDING,
            "if transaction is None and half.queue_offset < self._feed.half_end:",
            "if self._open and transaction is None and half.queue_offset < self._feed.half_end:",
            ("INV_B59",), ACTING),
    Planted("a decision in flight is decided again", ENDING,
            "        if under_way is not None:\n            if under_way.decision",
            "        if False:\n            if under_way.decision", ("INV_B59",), ACTING),
    Planted("a slave answers a decision before it is kept", ENDING,
            "                ledger.when_kept(lambda: self._stood_in(first, under_way, half, result))\n",
            "                self._stood_in(first, under_way, half, result)\n", ("INV_B63",), ACTING),
    Planted("a slave forgets what it decided", ENDING,
            "                ledger.decide(first, committed=under_way.decision is COMMITTED)\n",
            "                pass\n", ("INV_B63",), ACTING),
    Planted("a rollback at a slave is a commit", LEDGER,
            "self.note(_decided(offset), int(committed))", "self.note(_decided(offset), 1)", ("INV_B63",), ACTING),
    Planted("commits are answered before the ledger keeps them", LEDGER,
            "        self._offsets.requests.when_kept = self._when_kept\n", "", ("INV_B63",), ACTING),
    Planted("a slave takes offsets during the hand-over", LEDGER,
            "            self._offsets.table.frozen = True\n", "            pass\n", ("INV_B63",), ACTING),
    Planted("a ledger is forgotten at once", LEDGER,
            "if now_ns - self._led_ns >= FORGET_NS and len(self.ledger):", "if True:", ("INV_B63",), ACTING),
    Planted("slaves do not copy their ledgers", LEDGER,
            "        elif self._notes and role.listed:\n", "        elif False:\n", ("INV_B63",), ACTING),
    Planted("a slave loads no ledger", LEDGER,
            "        for entry in self._legible(self.file.load(), \"this broker\"):\n"
            "            self.ledger.take(entry)\n",
            "        self.file.load()\n", ("INV_B63",), ACTING),
    Planted("a master takes only what a newer version says", "broker/offsets/table.py",
            "(newer or offset > kept.get(queue_id, -1))", "newer", ("INV_B57",), ACTING),
    Planted("fewer than half are a majority, where locks are simulated", "broker/locks/quorum.py",
            "return total_replicas // 2 + 1", "return total_replicas // 2", ("INV_B61",), LOCKS),
    Planted("a broker that started grants at once", "broker/consumers/locks.py",
            "if not lasts and now_ns < self.silent_until_ns:", "if False:", ("INV_B61",), LOCKS),
    Planted("a queue is granted to whoever asks", "broker/locks/quorum.py",
            "if votes[queue] >= needed]", "if votes[queue]]", ("INV_B61",), LOCKS),
)
