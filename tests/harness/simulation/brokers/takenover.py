"""Planted bugs of groups without controllers that their simulation notices: rights, ledgers and locks."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

RIGHT: Final = "broker/acting/right.py"
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
    Planted("a master reads no ledger", "broker/ledger/part.py",
            "        entries = list(found.after())\n", "        entries = []\n", ("INV_B57",), ACTING),
    Planted("fewer than half are a majority, where locks are simulated", "broker/locks/quorum.py",
            "return total_replicas // 2 + 1", "return total_replicas // 2", ("INV_B61",), LOCKS),
    Planted("a broker that started grants at once", "broker/consumers/locks.py",
            "if not lasts and now_ns < self.silent_until_ns:", "if False:", ("INV_B61",), LOCKS),
    Planted("a queue is granted to whoever asks", "broker/locks/quorum.py",
            "if votes[queue] >= needed]", "if votes[queue]]", ("INV_B61",), LOCKS),
)
