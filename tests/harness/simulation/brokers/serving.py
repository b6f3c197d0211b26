"""Planted bugs of what a broker does for whoever is connected: answers, probes, log lines, the way of a send."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

PUTS: Final = "tests/broker/test_puts.py::"
BACKLOG: Final = "remoting/backlog.py"
UNREAD: Final = "tests/remoting/test_backlog.py::"
RULES: Final = "tests/broker/test_rules.py::"
CHAINS: Final = "tests/broker/sending/test_chains.py::"
SENDS: Final = "tests/broker/sending/test_sending.py::"
BACK: Final = "tests/broker/sending/test_sendback.py::"
MOMENTS: Final = "tests/broker/test_moments.py::"

PLANTED: Final = (
    # --- answers that nobody reads
    Planted("there is no end to what waits for who does not read", BACKLOG,
            "        return self.bytes > self._budget\n", "        return False\n",
            (UNREAD + "test_a_thousand_that_do_not_read_fill_the_budget_and_no_more",)),
    Planted("who does not read has no share but all", BACKLOG,
            "        return min(self._pause, self._short // len(self._since))\n", "        return self._pause\n",
            (UNREAD + "test_the_book_agrees_with_what_happened",)),
    Planted("who stalls stays as long as there is room", BACKLOG,
            "first if self.full or stalled_s >= self._stall_s else None", "first if self.full else None",
            (UNREAD + "test_who_takes_nothing_is_closed_after_its_time_only_while_the_budget_is_short",)),
    Planted("who takes its answers slowly is taken for deaf", BACKLOG,
            "        del self._since[connection]\n        self._since[connection] = now\n\n    def ends",
            "\n    def ends",
            (UNREAD + "test_who_takes_its_answers_slowly_stays", UNREAD + "test_the_book_agrees_with_what_happened")),
    Planted("who reads waits behind who does not", "remoting/endpoint.py",
            "                self.relieved.unpark_all()\n", "",
            (UNREAD + "test_who_reads_is_answered_in_the_same_moment",)),
    Planted("who came first goes, though it reads", BACKLOG,
            "        if self.full and stalled_s < _MOMENT_S:\n", "        if False:\n",
            (UNREAD + "test_the_book_agrees_with_what_happened",)),
    Planted("a pull that was held is answered whoever reads", "broker/pulling/requests.py",
            "_ask_again(request) if connection.congested else ", "",
            ("tests/broker/pulling/test_requests.py::test_who_has_not_taken_what_it_got_is_told_to_ask_again",)),
    Planted("what a closed connection did not take is counted for ever", "remoting/connection.py",
            "        self.endpoint.backlog.ends(self, self._out_bytes)\n        self._out_bytes = 0",
            "        self._out_bytes = 0",
            (UNREAD + "test_a_close_forgets_what_waited",)),
    Planted("slow connections keep others from the pages", "raft/monitoring.py",
            "            oldest.cancel()\n", "            await trio.sleep(5)\n",
            ("tests/raft/test_monitoring.py::test_slow_connections_keep_nobody_from_the_pages",)),
    # --- what waits for a disk
    Planted("any number of messages may wait for a disk", "broker/puts.py",
            "        if len(waiting) < UNFLUSHED_MAX and size", "        if size",
            (PUTS + "test_what_waits_for_a_disk_that_stands_still_is_bounded",)),
    Planted("any number of bytes may wait for a disk", "broker/puts.py",
            "        if len(waiting) < UNFLUSHED_MAX and size < UNFLUSHED_BYTES_MAX:\n",
            "        if len(waiting) < UNFLUSHED_MAX:\n",
            (PUTS + "test_so_many_bytes_of_the_log_wait_for_a_disk_and_no_more",)),
    # --- whether a server is ready
    Planted("a broker without a role is ready", "broker/metrics.py",
            "        if not running.registration.is_open:\n", "        if False:\n",
            ("tests/broker/test_metrics.py::test_a_broker_without_a_role_is_not_ready",)),
    Planted("a master whose lease is over is ready", "broker/puts.py",
            'return "" if self._may(self._journal.now_ns()) else LEASE_OVER', 'return ""',
            ("tests/broker/test_metrics.py::test_a_master_whose_lease_is_over_is_not_ready_and_its_slave_is",)),
    Planted("a broker that stops is ready", "broker/metrics.py",
            "        if running.stopping:\n", "        if False:\n",
            ("tests/broker/test_metrics.py::test_a_master_and_its_slave_are_ready_and_not_while_they_stop",)),
    Planted("a node without a leader is ready", "raft/probes.py",
            '"not_a_member", "no_leader", "no_quorum"', '"not_a_member"',
            ("tests/raft/test_probes.py::test_who_does_not_serve_is_healthy_and_not_ready",)),
    # --- log lines
    Planted("each line is a kind of its own", "raft/loglimit.py",
            "record.levelno, str(record.msg)", "record.levelno, record.getMessage()",
            ("tests/raft/test_loglimit.py::test_a_flood_is_some_lines_and_a_number",)),
    Planted("nobody hears of the lines that were left out last", "raft/loglimit.py",
            "        if ask:\n", "        if False:\n",
            ("tests/raft/test_loglimit.py::test_what_was_left_out_is_said_though_nobody_logs_any_more",)),
    # --- the way of a send
    Planted("a message that waits elsewhere is put elsewhere again", "broker/rules.py",
            " = verdict.topic, verdict.queue_id\n                return None\n",
            " = verdict.topic, verdict.queue_id\n",
            (RULES + "test_a_diversion_keeps_where_the_message_is_meant_for_and_ends_the_chain",)),
    Planted("a sender says where its delayed message goes", "broker/rules.py",
            "draft.properties |= {REAL_TOPIC: draft.topic, REAL_QID: str(draft.queue_id)}\n",
            "draft.properties = {REAL_TOPIC: draft.topic, REAL_QID: str(draft.queue_id)} | draft.properties\n",
            (RULES + "test_what_a_sender_claims_of_a_diversion_is_overwritten",)),
    Planted("what a rule looks at brings nobody before it", "broker/sending/chains.py",
            "rule(unserved.inner_batches, INNER_NUM),\n        rule(unserved.light",
            "rule(unserved.inner_batches),\n        rule(unserved.light", (SENDS + "test_refusals",)),
    Planted("dead letters are delayed", "broker/sending/chains.py",
            '        draft.properties[DELAY] = "-1"\n', "", (CHAINS + "test_dead_letters_are_delayed_by_nothing",)),
    Planted("whoever delays a transaction gets past", "broker/transactions/conversion.py",
            "draft.reconsume_times > 0 and draft.level > 0)", "draft.level > 0)", (CHAINS + "test_transactions",)),
    Planted("a send overtakes those that wait for its topic", "broker/sending/targets.py",
            "        if name in self._waiting:\n            return NOT_YET\n", "",
            (SENDS + "test_sends_that_wait_for_their_topic_keep_their_order",)),
    Planted("dead letters are put before their topic is on disk", "broker/sending/chains.py",
            "            self.topics.create_for_dead_letters(name)\n            return NOT_YET\n",
            "            self.topics.create_for_dead_letters(name)\n",
            (CHAINS + "test_dead_letters_are_delayed_by_nothing",)),
    Planted("what is given back keeps its timers", "broker/schedule/levels.py",
            "                del values[timer]\n", "                pass\n",
            (CHAINS + "test_delay_levels",
             BACK + "test_its_delay_wins_over_timers_that_it_came_with")),
    Planted("full properties are refused for ever", "broker/sending/sendback.py",
            "full := len(properties) > PROPERTIES_BYTES_MAX", "full := False",
            (BACK + "test_full_properties_go_to_the_dead_letters_as_they_are",)),
    Planted("a retry that just fits is a dead letter", "broker/sending/sendback.py",
            "len(properties) > PROPERTIES_BYTES_MAX", "len(properties) >= PROPERTIES_BYTES_MAX",
            (BACK + "test_only_properties_with_too_little_room_make_a_dead_letter",)),
    # --- who is told first
    Planted("who came first is told first", "broker/moments.py",
            "        self._at[place].append(call)\n        self._order()\n",
            "        self._at[place].append(call)\n        self._calls = (*self._calls, call)\n",
            (MOMENTS + "test_the_place_counts_and_not_who_came_first",
             MOMENTS + "test_a_put_that_is_late_is_late_whoever_acknowledges_in_that_tick")),
    Planted("who left is told on", "broker/moments.py",
            "        self._at[place].remove(call)\n        self._order()\n", "        self._at[place].remove(call)\n",
            (MOMENTS + "test_who_shares_a_place_is_told_in_the_order_of_coming",)),
)
