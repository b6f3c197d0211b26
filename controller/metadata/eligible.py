"""Who may be elected beside the SyncStateSet, for how long, and why that loses nothing.

*The gap it closes* (discussed at apache/rocketmq#4330). An election leaves SyncStateSet = {new master}. If that one
dies before anybody has caught up with it, nobody is electable, although the former members hold all that was ever
acknowledged.

*The rule.* Let P be who was electable at the election of master m in epoch e: the SyncStateSet and who was eligible
beside it. The others of P stay eligible until the first AlterSyncStateSet of m that changes the set, but only if and
while m announces ``minInSyncReplicas`` >= 2.

*Why it is safe.* A master that announces it acknowledges nothing while the SyncStateSet that the controller has
accepted is smaller than that; the gate counts that set alone, never what the master itself believes. In epoch e that
set is {m} until m's first alter, so until then nothing is acknowledged in e. So whoever held, at the start of e, all
that was acknowledged, holds it still. By induction over epochs each of P does as far as clean election can tell, so
electing one of them is exactly as safe as it was to elect it in place of m. What ends it:

- the first alter that changes the set is applied: from then on m may acknowledge with its new set. m learns of the
  acceptance only after it was applied here, hence the eligible are gone before the first acknowledgement. An alter to
  the set that is already accepted opens no gate and ends nothing;
- a heartbeat of m announces less (``DropEligible``). A broker may lower its gate only after an answer that
  renewed its lease came to a heartbeat that said so (``masterLeaseRenewed``, which waits until nobody is eligible);
  that is part of announcing it. Java brokers announce nothing, so none of their former members is ever eligible;
- m registers again: its process is new and its configuration may be. It has acknowledged nothing as the new process,
  since that learns of its mastership from the answer;
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

from controller.metadata.commands import DropEligible, LiveReplica
from controller.metadata.groups import BrokerGroup
from controller.metadata.outcomes import EligibleDropped

GATED_FROM = 2
"""The least ``minInSyncReplicas`` with which a lone master acknowledges nothing."""


def announces_gate(replica: LiveReplica) -> bool:
    """Whether this broker, were it master and alone, would acknowledge nothing."""
    return replica.min_in_sync_replicas is not None and replica.min_in_sync_replicas >= GATED_FROM


def after_election(before: BrokerGroup, master: int, replica: LiveReplica) -> frozenset[int]:
    """Who is eligible beside the new master alone."""
    return before.electable - {master} if announces_gate(replica) else frozenset()


def drop(group: BrokerGroup, command: DropEligible) -> tuple[EligibleDropped, BrokerGroup]:
    """The master no longer announces its gate. One of an earlier mastership says nothing about this one."""
    if group.eligible and (command.broker_id, command.master_epoch) == (group.master, group.master_epoch):
        return EligibleDropped(key=command.key, changed=True), attrs.evolve(group, eligible=frozenset())
    return EligibleDropped(key=command.key), group
