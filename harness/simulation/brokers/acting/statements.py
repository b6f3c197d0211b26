"""Properties of groups without controllers, one sentence each. ``watch``, ``rights``, ``holders``, ``answers`` ask."""

from __future__ import annotations

from typing import Final

ACTING_STATEMENTS: Final[dict[str, str]] = {
    "INV_B55": "while a master is away and all else is well, what comes due is delivered by the slave that acts, all "
               "that it holds",
    "INV_B56": "one broker of a group may deliver what is due, but for the overlaps that the page's table has",
    "INV_B57": "a master that comes back is as far as the ledgers of its members say, in offsets, levels and timers, "
               "but for what was noted before a master that led since, and no offset is less than in their tables",
    "INV_B58": "an offset that was committed, and answered, at a slave that acts is the returned master's, and so is a "
               "decided transaction in the end",
    "INV_B59": "no producer is told both ends of a transaction, and nobody undoes one that was answered; who decides "
               "has read the ledgers of all slaves that name servers list, or waited for so long",
    "INV_B60": "a master that comes back holds the bytes that its members hold before it takes any message",
    "INV_B61": "by majority one client at most holds a queue, whoever acts and whoever forgot",
    "INV_B63": "what a slave answered in its master's place is in its ledger on disk, and in that of its next run, "
               "until a master has it; it notes nothing behind what its master has read, and the other slaves copy "
               "what it notes",
}
