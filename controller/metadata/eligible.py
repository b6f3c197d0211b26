"""Decides who may be elected beside the SyncStateSet, for how long, and why that loses nothing.

*The gap it closes* (discussed at apache/rocketmq#4330). An election leaves SyncStateSet = {new master}. If that one
dies before anybody has caught up with it, nobody is electable, although the former members hold all that was ever
acknowledged.

*The rule.* Let P be who was electable at the election of master m in epoch e: the SyncStateSet and who was eligible
beside it. The others of P stay eligible until the first AlterSyncStateSet of m that changes the set, but only if and
while m announces ``minInSyncReplicas`` >= 2.

*And since format 2*, where m announces all-ack, too: what ends it is an alter to a set of ``minInSyncReplicas`` members
or more. One that leaves fewer has whoever was electable and is not in the set eligible beside it: the members of the
last set that was large enough, and nobody who left before that. So a master that is left alone, and dies, is replaced.
The alter itself says what m demands: a heartbeat that this controller heard may be of before m lowered it.

*Why it is safe.* A master that announces it acknowledges nothing while the SyncStateSet that the controller has
accepted is smaller than that; the gate counts that set alone, never what the master itself believes. In epoch e that
set is {m} until m's first alter, so until then nothing is acknowledged in e. So whoever held, at the start of e, all
that was acknowledged, holds it still. By induction over epochs each of P does as far as clean election can tell, so
electing one of them is exactly as safe as it was to elect it in place of m. What ends it:

- the first alter that changes the set is applied: from then on m may acknowledge with its new set. m learns of the
  acceptance only after it was applied here, hence the eligible are gone before the first acknowledgement. An alter to
  the set that is already accepted opens no gate and ends nothing. With all-ack one to a set that is too small opens no
  gate either: what was acknowledged before it is held by every member of the set before it, and by all that are asked
  for, and nothing is after it;
- a heartbeat of m announces a minimum that the set meets (``DropEligible``). A broker may lower its gate only after an
  answer that renewed its lease came to a heartbeat that said so, and that left while no alter was under way
  (``masterLeaseRenewed``, which waits until nobody is eligible whom the announced gate does not protect); that is part
  of announcing it. Java brokers announce nothing, so none of their former members is ever eligible;
- m registers again, and may be a new process whose configuration is another. It has acknowledged nothing as the new
  process, since that learns of its mastership from the answer. One that is known, by its life, to be the same process
  ends nothing, nor does one that is known to be another: that leads nothing in epoch e, and m alters nothing any more;
- a removed replica is not eligible, and an election starts anew.

A failed election (no master, the next epoch) keeps both sets: where there is no master nobody acknowledges, and m, if
it lives on unseen, is alone behind its gate. An unclean election keeps them too: it announced loss, the former members
can only hold more than m.

*What it does not promise.* Without ``allAckInSyncStateSet`` a member of the SyncStateSet may lack acknowledged
messages, and electing it loses them: that is so of every clean election, with or without this rule; but with it such a
member may be elected where without it the group would wait for m. Messages sent with ``waitStoreMsgOK=false`` pass no
gate.

This module knows groups and the announcement; it does not know who is alive.
"""

from __future__ import annotations

import attrs

from controller.metadata.commands import AlterSyncStateSet, DropEligible, LiveReplica
from controller.metadata.groups import BrokerGroup
from controller.metadata.outcomes import EligibleDropped

ALL_ACK_FROM = 2
"""The format since which an alter may say that its sender acknowledges what all of its set hold."""


def announces_gate(replica: LiveReplica, in_sync: int) -> bool:
    """Return whether this broker would acknowledge nothing as a master with ``in_sync`` members in sync."""
    return replica.min_in_sync_replicas is not None and in_sync < replica.min_in_sync_replicas


def after_election(before: BrokerGroup, master: int, replica: LiveReplica) -> frozenset[int]:
    """Return the members that are eligible beside the new master alone."""
    assert not (replica.learner or before.replicas[master].learner), "a learner is never elected"
    return before.electable - {master} if announces_gate(replica, 1) else frozenset()


def after_alter(before: BrokerGroup, command: AlterSyncStateSet, in_use: int) -> frozenset[int]:
    """Return the members that are eligible beside the set that its master reports."""
    assert command.sync_state_set != before.sync_state_set, "an alter to the accepted set ends nothing"
    assert before.leader in command.sync_state_set, "no master acknowledges without itself"
    least = command.least if in_use >= ALL_ACK_FROM else None
    if least is None or len(command.sync_state_set) >= least:
        return frozenset()
    return before.electable - command.sync_state_set


def drop(group: BrokerGroup, command: DropEligible) -> tuple[EligibleDropped, BrokerGroup]:
    """The master announces no closed gate any more. One of an earlier mastership says nothing about this one."""
    if group.eligible and (command.broker_id, command.master_epoch) == (group.master, group.master_epoch):
        assert group.eligible <= group.replicas.keys() - group.sync_state_set, "eligible are members beside the set"
        return EligibleDropped(key=command.key, changed=True), attrs.evolve(group, eligible=frozenset())
    return EligibleDropped(key=command.key), group
