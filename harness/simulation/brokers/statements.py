"""The properties of a broker group, one sentence each. ``watch`` checks them."""

from __future__ import annotations

from typing import Final

STATEMENTS: Final[dict[str, str]] = {
    "INV_B1": "a later master holds all acknowledged messages, except those that the mode may lose",
    "INV_B2": "a slave acknowledges only bytes that its master has at the same offsets",
    "INV_B3": "every member of the committed SyncStateSet holds the log up to the confirm offset",
    "INV_B4": "the confirm offset does not fall within an epoch",
    "INV_B5": "consumers see only confirmed messages, and a message once seen stays for ever",
    "INV_B6": "the epoch file rises, equals the epochs in memory, and begins no epoch behind the log's end",
    "INV_B7": "replicas that agreed have one start for one epoch",
    "INV_B8": "a slave stores bytes under the epoch of the master that wrote them, and no epoch's end in mid-frame",
    "INV_B9": "a member of the SyncStateSet cuts off no confirmed bytes",
    "INV_B10": "after a cut log, queues, epochs and confirm offset all end at the cut",
    "INV_B11": "a slave appends only the bytes that follow its log's end",
    "INV_B12": "a slave acknowledges only bytes that it has stored, and flushed under synchronous flush",
    "INV_B13": "a broker that joins the SyncStateSet holds all confirmed bytes and the epoch's start at that moment",
    "INV_B14": "while a change of the SyncStateSet is under way, the members asked for hold acknowledged messages, too",
    "INV_B15": "every member of the SyncStateSet holds all acknowledged messages",
    "INV_B16": "a master uses only a SyncStateSet that the controllers have committed",
    "INV_B17": "with fewer in sync than minInSyncReplicas nothing is written",
    "INV_B18": "offsets of a queue have no gaps, and each names one message for ever",
    "INV_B19": "a producer's messages are in order, and twice only if an outcome was unknown",
    "INV_B20": "no consumer is ahead of the queues of a new master",
    "INV_B21": "a log opens at a message's end, with all safe bytes, and no offset on disk points behind it",
    "INV_B22": "after healing all replicas are level with the master and in sync, with the minimum that operators "
               "demand",
    "INV_B23": "an acknowledged put is held at that moment by an accepted SyncStateSet of minInSyncReplicas members "
               "or more, and by every broker that a clean election may choose",
    "INV_B24": "messages that consumers could see are in the log of every later master, and are seen again",
    "INV_B25": "a replica that was killed starts with all that consumers could see, and never with a confirm offset "
               "above the last one it was told",
    "INV_B27": "no two living processes are master of one epoch",
    "INV_B28": "a slave appends only whole messages and blanks, however its master's frames split them",
    "INV_B29": "a broker that lost bytes to a power cut, or to an older copy of its directory, leads only if all "
               "electable brokers lost some, or if an operator says so",
    "INV_B30": "bytes not synced before a power cut are acknowledged only after they were copied again",
    "INV_B31": "a raised minimum is in force at once; a lowered one not while others are eligible because of the "
               "higher one",
    "INV_B32": "no replica judges a peer silent that it heard in time, or while it was not reading itself",
    "INV_B33": "no replica judges its disk to be in trouble while it is well",
    "INV_B34": "where all members must acknowledge, a master asks for a successor before it shrinks its "
               "SyncStateSet below its own minimum",
    "INV_B35": "a controller replaces living masters with a backoff that doubles, from a second to a minute",
    "INV_B36": "after healing all delayed messages and timers that were acknowledged, or seen to wait, are delivered",
    "INV_B37": "no delayed message and no timer is delivered before it is due",
    "INV_B38": "a delivered message was sent, has the body and the queue it was sent with, and was not refused",
    "INV_B39": "a master delivers a message again only if the outcome of its first delivery is unknown",
    "INV_B40": "a master delivers a level's messages in their order and leaves none out",
    "INV_B41": "a timer whose recall was acknowledged ahead of its time is not delivered",
    "INV_B42": "a transaction has one final message at most, and none unless its producer commits",
    "INV_B43": "no transaction is committed and rolled back, and none is rolled back unless its producer says so",
    "INV_B44": "after healing every half message that was acknowledged, or seen to wait, is decided as its producer "
               "says or given up",
    "INV_B45": "after healing a group gets every message until one of its consumers has acknowledged it",
    "INV_B46": "a message whose acknowledgement was answered in time is neither given nor put back again",
    "INV_B47": "an ordered POP gives nothing while another consumer holds a message of that queue, and nothing behind "
               "a message that is not acknowledged",
    "INV_B48": "a message that is not acknowledged is back within 7 s of the end of its invisible time, if nothing "
               "fails",
    "INV_B49": "every message that a POP gives is in a checkpoint, stored as the group's mode demands",
    "INV_B50": "a group's offset passes no message that is in no stored checkpoint",
    "INV_B51": "no popped message is put back before its invisible time is over",
    "INV_B52": "a group is given a message again only from its retry topic, and a master puts it there again only if "
               "the outcome of its first put is unknown",
    "INV_B53": "no producer is told both that its transaction is committed and that it is rolled back",
    "INV_B54": "whoever stands still, a master keeps each set that it asks for once, one connection of each slave, and "
               "each put no longer than it may wait",
    "INV_B62": "after a deletion that was answered, a group of the topic made again, or the group made again, passes "
               "over no acknowledged message",
    "INV_B64": "a master that its slaves lose one after the other is replaced in time, if they are enough to go on",
    "INV_C14": "a broker that moved to a later epoch acknowledges nothing in an older one",
    "INV_C15": "a broker's epoch never falls, and an epoch has one master",
    "INV_C16": "a broker that knows of a later epoch, or whose lease is over, writes and acknowledges nothing",
    "INV_C17": "after healing all brokers agree with the controllers, even if notifications are lost",
    "INV_C25": "a broker that is eligible beside the SyncStateSet holds all acknowledged messages",
    "INV_LEASE": "where controllers wait for leases, no master writes or acknowledges beside another",
}
OF_CONTROLLERS: Final = (
    "INV_C1", "INV_C2", "INV_C3", "INV_C4", "INV_C5", "INV_C6", "INV_C7", "INV_C8", "INV_C9", "INV_C10", "INV_C11",
    "INV_C12", "INV_C22", "INV_C23", "INV_C24", "INV_ELIGIBLE")
"""Properties of the metadata, from ``controller.metadata.invariants``; only ``simulation.controllers`` cleans ids."""
PREDICATES: Final = (*STATEMENTS, *OF_CONTROLLERS)
