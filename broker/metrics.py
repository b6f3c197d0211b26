"""A broker's metrics for Prometheus, by the names of Java's ``BrokerMetricsConstant`` where it has the same, else ours.

Each part has lines of its own. The page also says whether the broker is healthy and ready. State is read when it is
asked for. Needs the extra ``metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from remoting.codes import RequestCode
from remoting.daemon.page import Metric, Page

if TYPE_CHECKING:
    from broker.server import RunningBroker


class BrokerMetrics(Page):
    """The page. Labels are cluster, node_type and node_id as Java's, and those of ``metricsLabel``."""

    def __init__(self, running: RunningBroker) -> None:
        config = running.config
        super().__init__({"cluster": config.broker_cluster_name, "node_type": "broker", "node_id": config.broker_name,
                          **config.metric_labels})
        self._running = running

    def unhealthy(self) -> str:
        """Return why this process stores nothing any more; "" if it stores."""
        failure = self._running.journal.failure
        return "" if failure is None else f"the store has failed: {failure}"

    def unready(self) -> str:
        """Return why clients are not served (no role yet, a master whose writes are closed, the end); "" if they
        are."""
        running = self._running
        if running.stopping:
            return "the broker stops"
        if why := self.unhealthy():
            return why
        if not running.registration.is_open:
            return "the broker has no role yet"
        closed = running.puts.closed if running.standing.role.takes_puts else ""
        return closed and f"the master takes no messages: {closed}"

    def unwritable(self) -> str:
        """Return why this broker takes no messages now; "" if it is a master that takes them."""
        return self._running.puts.closed

    def collect(self) -> Iterator[Metric]:
        yield from self._role()
        for part in self._running.parts:
            yield from part.metrics(self)
        yield from self._store()
        yield self.counter("broker_request", "Requests by code. Ours.", [
            ((_name(code),), count) for code, count in sorted(self._running.server.counters.requests.items()) if count
        ], "request_code")
        yield from self.remoting(self._running.server.counters)

    def _role(self) -> Iterator[Metric]:
        running = self._running
        yield self.gauge("broker_is_master", "1 on the group's master. Ours.", [((), running.standing.role.leads)])
        yield self.gauge("broker_writes_open", "1 while messages are taken. Ours.", [((), running.puts.serving)])
        yield self.gauge("broker_registered_name_servers", "Name servers that know this broker. Ours.",
                         [((), len(running.registration.registered))])
        replication = running.roles.runtime_info()
        yield self.gauge("broker_in_sync_slaves", "Slaves that count as in sync. Ours.",
                         [((), replication.in_sync_slave_nums)])
        yield self.gauge("broker_slave_behind_bytes", "What each slave has not acknowledged. Ours.", [
            ((slave.addr or "?",), slave.diff) for slave in replication.ha_connection_info], "slave")

    def _store(self) -> Iterator[Metric]:
        journal = self._running.journal
        yield self.gauge("rocketmq_storage_size", "Bytes of the log.", [((), journal.end - journal.begin)])
        yield self.gauge("rocketmq_storage_flush_behind_bytes", "Not flushed yet.",
                         [((), journal.end - journal.log.flushed_offset)])
        yield self.gauge("rocketmq_storage_dispatch_behind_bytes", "Not visible to consumers yet.",
                         [((), journal.end - journal.visible.offset)])
        yield self.gauge("broker_log_kept_back_bytes", "Of old files that stay for messages that wait in them. Ours.",
                         [((), journal.needed.kept_bytes(journal.begin))])
        yield self.gauge("broker_log_end", "Behind the last message. Ours.", [((), journal.end)])
        yield self.gauge("broker_confirm_offset", "Up to where all that must hold it, do. Ours.",
                         [((), journal.confirm_offset)])


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)
