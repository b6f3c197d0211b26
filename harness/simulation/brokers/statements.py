"""What must hold in a broker group, one sentence for each property. Who asks them is ``watch``."""

from __future__ import annotations

from typing import Final

STATEMENTS: Final[dict[str, str]] = {
    "INV_B1": "a later master holds all that was acknowledged, but for what the mode may lose",
    "INV_B2": "what a slave acknowledges is what its master has there",
    "INV_B3": "what is confirmed is held by every member of the SyncStateSet that the controllers have",
    "INV_B4": "the confirm offset does not fall within an epoch",
    "INV_B5": "consumers see nothing that is not confirmed, and what they saw once is there for ever",
    "INV_B6": "the epoch file rises, is what the broker goes by, and begins no epoch behind the log's end",
    "INV_B7": "replicas that agreed have one start for one epoch",
    "INV_B8": "a slave stores bytes under the epoch of the master that wrote them, and no epoch's end in mid-frame",
    "INV_B9": "a member of the SyncStateSet cuts nothing that was confirmed",
    "INV_B10": "after a cut nothing tells of what is behind it: log, queues, epochs, confirm offset",
    "INV_B11": "a slave stores what comes next, and nothing else",
    "INV_B12": "a slave acknowledges what it has stored, and flushed where that is waited for",
    "INV_B13": "who joins the SyncStateSet holds all that is confirmed, and the epoch's beginning, as it joins",
    "INV_B14": "while a change of the SyncStateSet is under way, its members hold what is acknowledged, too",
    "INV_B15": "every member of the SyncStateSet holds what is acknowledged",
    "INV_B16": "a master goes by no SyncStateSet that the controllers have not committed",
    "INV_B17": "with fewer in sync than minInSyncReplicas nothing is written",
    "INV_B18": "offsets of a queue have no gaps, and each names one message for ever",
    "INV_B19": "a producer's messages are in order, twice only where an outcome was unknown",
    "INV_B20": "no consumer is ahead of the queues of a new master",
    "INV_B21": "a log opens at a message's end, with all that was safe, and nothing counts on more than there is",
    "INV_B22": "healed, all replicas are level with the master and in sync, and go by what their operators demand",
    "INV_B23": "what is acknowledged is held, at that moment, by an accepted SyncStateSet of minInSyncReplicas members "
               "or more, and by everybody whom a clean election may choose",
    "INV_B24": "what consumers could see once is in the log of every later master, and is seen again",
    "INV_B25": "a replica that was killed starts where consumers could see it; none starts with more than it was told",
    "INV_B27": "no two living processes are master of one epoch",
    "INV_B28": "what a slave appends is whole messages and blanks, however its master's frames cut them",
    "INV_B29": "who lost something to a power cut leads only where all lost something who might have been elected, or "
               "where an operator says so",
    "INV_B30": "what was not synced before a power cut is acknowledged when it was copied again",
    "INV_B31": "a raised minimum is in force at once; a lowered one not while others are eligible on account of the "
               "higher one",
    "INV_B32": "nobody is accused of a silence who spoke, nor by who did not listen",
    "INV_B33": "no replica accuses a disk that is well",
    "INV_B34": "where all must hold what is acknowledged, a master has its members asked before it wants fewer in sync "
               "than it demands",
    "INV_B35": "a controller replaces one living master after another no sooner than after a wait that doubles, from a "
               "second to a minute",
    "INV_B36": "healed, all delayed messages and timers that were acknowledged, or seen to wait, are delivered",
    "INV_B37": "no delayed message and no timer is delivered before it is due",
    "INV_B38": "what is delivered is what was sent, where it was sent to, and nothing that was refused",
    "INV_B39": "a master delivers a message again only when it does not know what became of the first time",
    "INV_B40": "a master delivers a level's messages in their order and leaves none out",
    "INV_B41": "a timer that was taken back ahead of its moment, and acknowledged so, is not delivered",
    "INV_B42": "a transaction has one final message at most, and none unless its producer commits",
    "INV_B43": "no transaction is committed and rolled back, and none is rolled back unless its producer says so",
    "INV_B44": "healed, every half that was acknowledged, or seen to wait, is decided as its producer says or given up",
    "INV_B45": "healed, a group gets every message until one of its consumers has acknowledged it",
    "INV_B46": "what a consumer acknowledged within its time, and was told so, is neither given nor put back again",
    "INV_B47": "who pops in order is given nothing while another consumer has a message of that queue, and nothing "
               "behind one that nobody acknowledged",
    "INV_B48": "what nobody acknowledged is back within 7 s of the end of its time, where nothing fails",
    "INV_B49": "what a POP gives is in a checkpoint that is stored as the group's mode demands",
    "INV_B50": "a group's offset passes no message that is in no stored checkpoint",
    "INV_B51": "nothing that was popped is put back before its time is over",
    "INV_B52": "a group is given a message again only by its retry topic, and a master puts it there again only when "
               "it does not know what became of the first time",
    "INV_B53": "no producer is told that its transaction is committed, and that it is rolled back",
    "INV_C14": "who moved to a later epoch acknowledges nothing in an older one",
    "INV_C15": "a broker's epoch never falls, and an epoch has one master",
    "INV_C16": "nothing is written or acknowledged by who knows of a later epoch, or whose lease is over",
    "INV_C17": "healed, all brokers agree with the controllers, though notifications be lost",
    "INV_C25": "who is eligible beside the SyncStateSet holds all that was acknowledged",
    "INV_LEASE": "where leases are waited for, nothing is written or acknowledged beside another master",
}
OF_CONTROLLERS: Final = (
    "INV_C1", "INV_C2", "INV_C3", "INV_C4", "INV_C5", "INV_C6", "INV_C7", "INV_C8", "INV_C9", "INV_C10", "INV_C11",
    "INV_C12", "INV_C22", "INV_C23", "INV_C24", "INV_ELIGIBLE")
"""Of the metadata, as ``controller.metadata.invariants`` asks them; only ``simulation.controllers`` cleans ids."""
PREDICATES: Final = (*STATEMENTS, *OF_CONTROLLERS)
