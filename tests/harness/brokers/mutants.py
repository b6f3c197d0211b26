"""Planted bugs of the brokers' cores, and what must notice each: a property of the simulation, or tests of the part.

Tests are named where another layer makes up for what is left out.
"""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

HA: Final = "broker/ha/"
MANAGER: Final = "broker/replicas/manager.py"
STORE: Final = "broker/store/"
REPLICATION: Final = "tests/broker/ha/test_replication.py::"

PLANTED: Final = (
    # --- what is confirmed and acknowledged
    Planted("who has not acknowledged yet is passed over (H5)", HA + "insync.py",
            "least = min(least, -1 if slave.ack is None else slave.ack)",
            "least = min(least, least if slave.ack is None else slave.ack)", ("INV_B3",)),
    Planted("what is asked for does not count (apache/rocketmq#5663)", HA + "insync.py",
            "return self.accepted.union({self.self_id}, joining, *self.asked.values())",
            "return self.accepted.union({self.self_id}, joining)", ("INV_B14", "INV_B3", "INV_B13", "INV_B15")),
    Planted("whoever is connected joins", HA + "insync.py",
            "return [member for member in (*kept, *joining) if self._ack(member) >= floor]",
            "return [member for member, slave in self._slaves.items() if slave.connected and not slave.learner]",
            ("INV_B13",)),
    Planted("one holder is all", HA + "acks.py",
            "        return holders.holds_all(end)\n", "        return holders.holders(end) >= 1\n", ("INV_B15",)),
    Planted("nobody is waited for", "broker/puts.py",
            "satisfied(need, put.end, replication.holders):", "put.end:", ("INV_B15",)),
    Planted("the gate is open", HA + "acks.py",
            "        if replicas.accepted < config.min_in_sync_replicas:\n", "        if False:\n", ("INV_B17",)),
    Planted("a set is accepted without the controller", HA + "insync.py",
            "        self.asked[request] = members\n", "        self.asked[request] = self.accepted = members\n",
            ("INV_B16",)),
    Planted("written is durable", "broker/journal.py",
            "min(self.durable_end, log.flushed_offset) if self.sync_flush else self.end\n", "self.end\n", ("INV_B12",)),
    Planted("puts do not wait for their flush", "broker/puts.py",
            "        if journal.sync_flush and wait_store_ok:\n", "        if False:\n", ("INV_B12",), "weak"),
    # --- replication
    Planted("received is acknowledged", HA + "slave.py",
            "        return Send(Ack(self.log_end).to_bytes())",
            "        return Send(Ack(self._received_end).to_bytes())",
            ("INV_B12",)),
    Planted("a slave is not cut", HA + "slave.py",
            "        if point < self._received_end or everything:\n", "        if everything:\n", ("INV_B2", "INV_B7")),
    Planted("logs of one epoch agree to the nearer end of both", HA + "epochs.py",
            "            return min(mine.end(at), local_end, theirs.end(other), master_end)\n",
            "            return min(local_end, master_end)\n", ("INV_B2", "INV_B8", "INV_B7")),
    Planted("what a power cut took from the master stays on slaves", HA + "master.py",
            "log.end if here.handshake.broker_id in self._met else min(log.end, self._began)", "log.end",
            (REPLICATION + "test_what_a_power_cut_took_from_a_master_is_cut_from_its_slaves",)),
    Planted("a master goes on with its epoch after its machine went down", MANAGER,
            "        if master == self.broker_id and epoch <= self._doubtful_epoch:\n", "        if False:\n",
            ("INV_B2",), "power"),
    Planted("one that resigns beats on", MANAGER,
            "                or self._resigning or not self._is_due(\"beat\", now_ns):\n",
            "                or not self._is_due(\"beat\", now_ns):\n",
            ("tests/broker/replicas/test_manager.py::"
             "test_a_master_that_resigns_is_silent_until_a_java_controller_gives_it_up",)),
    Planted("a start clears the doubt of the one before", HA + "epochfile.py",
            "        return Found(loaded.epochs, NoEpochs.PLAIN if main",
            "        self.lead(loaded.epochs, new=False)\n        return Found(loaded.epochs, NoEpochs.PLAIN if main",
            ("tests/broker/ha/test_autoswitch.py::test_a_second_restart_does_not_clear_the_doubt",)),
    Planted("a failed disk leaves no doubt", HA + "autoswitch.py",
            "            self._epoch_file.doubt()\n", "            pass\n",
            ("tests/broker/ha/test_autoswitch.py::"
             "test_after_a_failure_of_the_disk_the_last_epoch_is_in_doubt",)),
    Planted("a frame goes on into the next epoch", HA + "master.py",
            "        return found, after.start if after else END_OFFSET_OPEN\n",
            "        return found, END_OFFSET_OPEN\n",
            ("INV_B8",)),
    Planted("a slave writes no epochs", HA + "slave.py",
            "                outputs.append(WriteEpochs(known))\n", "                pass\n", ("INV_B9", "INV_B22")),
    Planted("members that lag are cut out of what is confirmed", HA + "insync.py",
            "        self.confirm = max(self.confirm, least)\n", "        self.confirm = self.log_end\n", ("INV_B3",)),
    Planted("nobody leaves and nobody joins", HA + "insync.py",
            "        if target != self.accepted:\n            return target\n", "", ("INV_B22",)),
    # --- roles and leases
    Planted("the lease does not end", "broker/replicas/lease.py",
            "return self.began and (self.until_ns is None or now_ns < self.until_ns)", "return self.began",
            ("INV_C16",)),
    Planted("a lease that was never granted holds", "broker/replicas/lease.py",
            "return not self.granted or not self.length_ns or self.until_ns is not None", "return True",
            ("tests/broker/replicas/test_manager.py::"
             "test_a_new_master_serves_nobody_before_its_lease_is_granted",)),
    Planted("the lease counts twice", "broker/replicas/lease.py",
            "sent_ns + self.length_ns)", "sent_ns + 2 * self.length_ns)", ("INV_C16",)),
    Planted("a stopped process does not look at its lease", "broker/puts.py",
            "        if not self._turn_ns and not self._may(now_ns):\n", "        if False:\n",
            ("INV_C16",), "roles"),
    Planted("it writes on while it changes its role", MANAGER,
            "        elif self._target is not None:\n            why", "        elif False:\n            why",
            ("INV_C16",)),
    Planted("notifications alone", MANAGER,
            "        if (self.stage is Stage.RUNNING or config.learner) and self._is_due(\"poll\", now_ns):\n",
            "        if config.learner and self._is_due(\"poll\", now_ns):\n", ("INV_C17",)),
    Planted("whoever tells of a role is believed", MANAGER, "        if not known:\n", "        if False:\n",
            ("INV_C15",), "roles"),
    Planted("what is told to a broker without a role counts", MANAGER,
            "        if self.role is None and self._target is None:\n            self._due[\"poll\"",
            "        if False:\n            self._due[\"poll\"",
            ("tests/broker/replicas/test_manager.py::test_what_is_told_to_a_broker_without_a_role_may_be_old",)),
    # --- the store under it
    Planted("a cut leaves the queues (apache/rocketmq#10666)", STORE + "store.py",
            "            self._queues.truncate(offset)\n", "", ("INV_B10",)),
    Planted("a new master gives old queue offsets (apache/rocketmq#7689)", STORE + "store.py",
            "        self._next = None\n        if not self.log.max_offset:", "        if not self.log.max_offset:",
            ("INV_B18",)),
    Planted("only the last file is synced", STORE + "commitlog.py",
            "SyncJob(tuple(self._open[first:last])", "SyncJob(tuple(self._open[last - 1:last])", ("INV_B21",), "power"),
    Planted("a flush counts on what a killed process left in memory", STORE + "consumequeue.py",
            "        self._doubt_what_is_not_sure(min(sure, log_end))\n\n", "\n",
            ("tests/broker/store/test_flush.py::"
             "test_a_flush_counts_on_no_entry_that_a_killed_process_left_in_memory",)),
    Planted("a queue that lacks a file is taken for whole", STORE + "store.py",
            "                if queue_offset > due and gapless:\n                    return False\n", "",
            ("tests/broker/store/test_flush.py::test_queues_that_lost_more_than_a_file_are_told_again",)),
    Planted("a checkpoint counts on more than was flushed", STORE + "store.py",
            "min(queues.offset, indexed.offset, self.log.flushed_offset)", "min(queues.offset, indexed.offset)",
            ("tests/broker/store/test_flush.py::test_no_checkpoint_counts_on_a_log_that_was_not_flushed",)),
    Planted("consumers see what is written", "broker/journal.py",
            "self.store.dispatch_slice(self.confirm_offset, self.config",
            "self.store.dispatch_slice(self.end, self.config",
            ("INV_B5",)),
)
