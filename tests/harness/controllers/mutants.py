"""Planted bugs, and what must notice each: a predicate of the simulation, or tests of the part.

Tests are given where a simulation is not to notice: brokers' polls make up for whatever a controller leaves out.
"""

from __future__ import annotations

import attrs

from tests.raft.bugs.mutant import Mutant


@attrs.frozen
class Planted:
    """A mutant of one file."""

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]
    """Predicates, one of which must fail; or pytest ids, one of which must turn red."""
    profile: str = "swarm"

    def apply(self, text: str) -> str:
        """Raises ``ValueError`` when the text is not there exactly once."""
        return Mutant(self.name, self.file, self.old, self.new, ()).apply(text)

    @property
    def by_simulation(self) -> bool:
        return self.caught_by[0].startswith("INV_")


METADATA, BROKER = "controller/metadata/", "harness/controllers/broker.py"
ACTIVE, LIVENESS = "tests/controller/test_active.py::", "tests/controller/test_liveness.py::"
NOTIFICATIONS, BUGS = "tests/controller/test_notifications.py::", "tests/controller/metadata/test_bugs.py::"

PLANTED = (
    Planted("the dead are elected", METADATA + "elect.py",
            "        broker_id: live[broker_id]\n        for broker_id in sorted(pool)\n"
            "        if broker_id in live and broker_id in group.replicas\n"
            "        and not (live[broker_id].learner or group.replicas[broker_id].learner)\n",
            "        broker_id: LiveReplica()\n        for broker_id in sorted(pool)\n"
            "        if broker_id in group.replicas\n        and not group.replicas[broker_id].learner\n",
            ("INV_C9",)),
    Planted("the SyncStateSet survives an election", METADATA + "elect.py",
            "        sync_state_set=frozenset({winner}),\n",
            "        sync_state_set=group.sync_state_set | {winner},\n", ("INV_C6",)),
    Planted("an election keeps the epoch", METADATA + "elect.py",
            "        master_epoch=group.master_epoch + 1,\n        sync_state_set=frozenset",
            "        master_epoch=max(group.master_epoch, 1),\n        sync_state_set=frozenset", ("INV_C1", "INV_C3")),
    Planted("anybody of the group is elected", METADATA + "elect.py",
            "if command.unclean else [group.electable]", "if True else [group.electable]", ("INV_C7",)),
    Planted("a cleaned master costs no epoch", METADATA + "clean.py",
            "        master_epoch=group.master_epoch + lost_master,\n",
            "        master_epoch=group.master_epoch,\n", ("INV_C1", "INV_C3")),
    Planted("ids of cleaned brokers are given again", METADATA + "clean.py",
            "        eligible=group.eligible - removed,\n",
            "        eligible=group.eligible - removed,\n"
            "        next_broker_id=max(group.replicas.keys() - removed, default=0) + 1,\n", ("INV_C12",)),
    Planted("a cleaned master stays master", METADATA + "clean.py",
            "        master=None if lost_master else group.master,\n", "        master=group.master,\n",
            ("INV_C2", "INV_C4")),
    Planted("a living master is replaced", METADATA + "elect.py",
            "and target in (None, group.master):\n", "and target == group.master:\n", ("INV_C8",)),
    Planted("a cleaned broker stays in sync", METADATA + "clean.py",
            "    shrunk = group.sync_state_set - removed\n", "    shrunk = group.sync_state_set\n", ("INV_C4",)),
    Planted("the living are cleaned", METADATA + "clean.py",
            "    if not command.clean_living:\n", "    if False:\n", ("INV_C19",)),
    Planted("the check code is not asked", METADATA + "identity.py",
            "    if member is not None and member.check_code == command.check_code:\n",
            "    if member is not None:\n", ("INV_C10", "INV_C11")),
    Planted("the eligible survive an alter", METADATA + "alter.py",
            "                eligible=frozenset(),\n",
            "                eligible=group.eligible - command.sync_state_set,\n", ("INV_ELIGIBLE", "INV_DATA")),
    Planted("an alter of an older set is taken", METADATA + "alter.py",
            "    if command.sync_state_set_epoch != group.sync_state_set_epoch:\n", "    if False:\n", ("INV_C5",)),
    Planted("an alter of a former master is taken", METADATA + "alter.py",
            "    if command.master_epoch != group.master_epoch:\n", "    if False:\n",
            (BUGS + "test_BUG_K11_a_deposed_master_learns_of_it",)),
    Planted("without a gate, too, there are eligible", METADATA + "eligible.py",
            "return before.electable - {master} if announces_gate(replica) else frozenset()",
            "return before.electable - {master}", ("INV_DATA",)),
    Planted("offsets of 32 bits", METADATA + "policy.py",
            "    return -replica.epoch, -replica.max_offset,",
            "    return -replica.epoch, -(replica.max_offset % 2**32),",
            ("INV_C9",)),
    Planted("the older epoch wins", METADATA + "policy.py",
            "    return -replica.epoch, -replica.max_offset,", "    return replica.epoch, -replica.max_offset,",
            ("INV_C9",)),
    Planted("a snapshot forgets the eligible", METADATA + "snapshot.py",
            "        eligible=ids(eligible),\n", "        eligible=frozenset(),\n", ("INV_C13",)),
    Planted("a failed election costs an epoch each time", METADATA + "elect.py",
            "    lost = command.trigger is Trigger.CONTROLLER and group.master is not None\n",
            "    lost = command.trigger is not Trigger.ADMIN and bool(group.sync_state_set)\n", ("INV_C22",)),
    Planted("silence without grace", "controller/liveness.py",
            "        return max(broker.heard_ns, self.active_since or 0) + broker.timeout_ns + 1\n",
            "        return broker.heard_ns + broker.timeout_ns + 1\n", ("INV_C21",)),
    Planted("a channel that was left closes", "controller/liveness.py",
            "        if broker.connection is not None:\n            others =",
            "        if False:\n            others =", ("INV_C21",)),
    Planted("late heartbeats take the channel back", "controller/liveness.py",
            "        elif connection in broker.left and self.life(now, beat.key, beat.broker_id) is Life.ALIVE:\n",
            "        elif False:\n", ("INV_C21",)),
    Planted("an unheard master is taken for dead", "controller/liveness.py",
            "        if master is not None and master not in live and not self.dead(now, key, master):\n",
            "        if False:\n", ("INV_C21",)),
    Planted("closes say nothing", "controller/liveness.py",
            "            broker.closed = True\n", "            pass\n", ("INV_C20",)),
    Planted("silence is never judged", "controller/liveness.py",
            "                broker.silent = True\n                gone.append", "                gone.append",
            ("INV_C20", "INV_C17")),
    Planted("a lost proposal is forgotten", "controller/active.py",
            "                heapq.heappush(self._later, (now + RETRY_MS * MS, command.key))\n",
            "                pass\n",
            (ACTIVE + "test_BUG_A9_a_lost_proposal_is_asked_for_again",)),
    Planted("a new active controller looks at nothing", "controller/active.py",
            "            self._expect(now, key, group)\n            self._marked[key] = None\n\n    def deactivate",
            "            self._expect(now, key, group)\n\n    def deactivate",
            (ACTIVE + "test_BUG_A7_what_happened_before_it_was_active_is_not_lost",)),
    Planted("a master that was lost is never looked for again", "controller/active.py",
            "        if group.master is None:\n            self._marked[key] = None\n", "",
            (ACTIVE + "test_BUG_A7_a_group_without_a_master_is_elected_for_when_somebody_comes_back",)),
    Planted("a lease is not waited for", "controller/active.py",
            "        return until if until is not None and until > now else None\n", "        return None\n",
            ("INV_LEASE",), "brokers"),
    Planted("others do not wait for the lease", "controller/active.py",
            "            return Observation({**observation.live, master: beat.replica})\n",
            "            return observation\n",
            (ACTIVE + "test_BUG_A14_a_close_can_wait_for_the_masters_lease",)),
    Planted("the lease is renewed while an election is under way", "controller/active.py",
            "        if not raft_lease or key in self._asked or key in self._doubted:\n",
            "        if not raft_lease or key in self._doubted:\n",
            (ACTIVE + "test_no_renewal_while_an_election_is_under_way",)),
    Planted("an election in doubt is forgotten", "controller/active.py",
            "                self._doubted[command.key] = None\n", "                pass\n",
            (ACTIVE + "test_an_election_in_doubt_holds_the_lease_back_until_a_later_entry_is_applied",)),
    Planted("a lowered gate is confirmed at once", "controller/active.py",
            "            self._marked[key] = None\n            return False\n        if not raft_lease",
            "            self._marked[key] = None\n        if not raft_lease",
            (ACTIVE + "test_a_lowered_gate_is_confirmed_by_a_renewal_only_when_nobody_is_eligible",)),
    Planted("the eligible stay when the gate goes", "controller/active.py",
            "        if group.eligible and beat is not None and not announces_gate(beat.replica):\n",
            "        if False:\n",
            (ACTIVE + "test_BUG_A13_the_eligible_go_when_the_gate_does",)),
    Planted("a notification is tried once", "controller/notifications.py",
            "            self._at(owed, now + wait_ms * MS)\n", "            pass\n",
            (NOTIFICATIONS + "test_BUG_A12_told_until_it_answers",)),
    Planted("an older notification's answer settles the newer", "controller/notifications.py",
            "        if owed is not None and owed.change is notification.change:\n            del",
            "        if owed is not None:\n            del",
            (NOTIFICATIONS + "test_a_newer_epoch_takes_the_place_of_an_older",)),
    # What follows are bugs of the model broker: they show that what watches brokers can object.
    Planted("broker: forgets its epoch", BROKER,
            "        self.enforced = max(self.enforced, self.gate)\n\n    @property",
            "        self.enforced = max(self.enforced, self.gate)\n        self.disk.epoch = 0\n\n    @property",
            ("INV_C15",)),
    Planted("broker: counts acknowledgements of any epoch", BROKER,
            "pull.epoch != mastership.epoch or ", "", ("INV_C14",)),
    Planted("broker: writes on without a master", BROKER,
            "self.disk.epoch, self.master, self.mastership = epoch, None, None", "self.disk.epoch = epoch",
            ("INV_C16",)),
    Planted("broker: counts only the set it knows", "harness/controllers/replication.py",
            "        return self.accepted.union(*self.wanted.values())\n", "        return self.accepted\n",
            ("INV_DATA",)),
    Planted("broker: a new process forgets what it asked for", BROKER, "sure=not again,", "sure=True,", ("INV_DATA",)),
    Planted("broker: follows notifications alone", BROKER,
            "                    self._change(header.master_broker_id, header.master_epoch, known)\n"
            "                elif header.master_epoch >= self.disk.epoch:\n",
            "                    pass\n                elif header.master_epoch >= self.disk.epoch:\n",
            ("INV_C17", "INV_C20")),
    Planted("controller: reads without a barrier", "harness/controllers/process.py",
            "                go_on()\n\n        self._read(through)\n",
            "                go_on()\n\n        through(None)\n",
            ("INV_C18",)),
)

