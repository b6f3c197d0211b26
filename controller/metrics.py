"""A controller's metrics for Prometheus, by the names of Java's ``ControllerMetricsConstant``, and raft's beside them.

State is read when somebody asks; what ``controller.recorder`` counted is added, and whether the controller is healthy
and ready. Needs the extra ``metrics``, as ``raft.metrics`` does, whose page this one includes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from prometheus_client import Metric as Family

from controller.handlers import Controller
from controller.recorder import Recorder
from raft.messages import Role
from raft.metrics import Metrics
from remoting.daemon.page import Metric, Page
from remoting.endpoint import Counters

_ROLES: Final = {Role.CANDIDATE: 1, Role.FOLLOWER: 2, Role.LEADER: 3}
_OPERATION: Final = "append"


class ControllerMetrics(Page):
    """The page. ``labels`` are on every line of ours: address, group, peer_id and those of ``metricsLabel``."""

    def __init__(
        self, core: Controller, recorder: Recorder, counters: Counters, store: Path,
        stopping: Callable[[], bool] = bool,
    ) -> None:
        self._core, self._recorder, self._counters, self._store = core, recorder, counters, store
        self._stopping = stopping
        config = core.config
        super().__init__({"address": config.address, "group": config.group, "peer_id": config.self_id,
                          **config.metric_labels})
        self._raft = Metrics()
        self._raft.watch(core.node)

    def exposition(self) -> bytes:
        return super().exposition() + self._raft.exposition()

    def families(self) -> Iterable[Family]:
        return chain(super().families(), self._raft.collect())

    def unhealthy(self) -> str:
        """Return why this controller's raft node does nothing any more; "" if it works."""
        return self._raft.unhealthy()

    def unready(self) -> str:
        """Return why brokers are not answered, or not told which controller is active; "" if they are."""
        if self._stopping():
            return "the controller stops"
        if why := self._raft.unready():
            return why
        core = self._core
        if core.node.status().leads and not core.active.active:
            return "it leads the controllers, but has not applied all that others committed before"
        return ""

    def collect(self) -> Iterator[Metric]:
        core, recorder = self._core, self._recorder
        yield self.gauge("role", "UNKNOWN 0, CANDIDATE 1, FOLLOWER 2, LEADER 3.",
                          [((), _ROLES.get(core.node.role, 0))])
        yield self.gauge("dledger_disk_usage", "Bytes of the replicated metadata's directory.",
                          [((), _directory_bytes(self._store))])
        alive = core.active.liveness.alive_count(core.clock())
        yield self.gauge("active_broker_num", "Brokers that this controller hears.",
                          [((key.cluster, key.name), count) for key, count in alive.items()], "cluster", "broker_set")
        yield self.gauge("active_controller", "1 on the active controller. Ours.", [((), core.active.active)])
        yield self.gauge("owed_notifications", "Living brokers that have not acknowledged word of an election. Ours.",
                          [((), core.active.owed(core.clock()))])
        yield self.counter("request", "Requests answered.", list(recorder.requests.items()),
                            "request_type", "request_handle_status")
        yield self.counter("dledger_op", "Commands that went through raft.",
                            [((_OPERATION, status), count) for status, count in recorder.operations.items()],
                            "dledger_operation", "dLedger_operation_status")
        yield self.counter("election", "Elections by result.",
                            [((key.cluster, key.name, result), count)
                             for (key, result), count in recorder.elections.items()],
                            "cluster", "broker_set", "election_result")
        yield self.histogram("request_latency", "Microseconds from reading a request to queueing its answer.",
                              recorder.request_latency, "request_type")
        yield self.histogram("dledger_op_latency", "Microseconds from proposing a command to applying it.",
                              {_OPERATION: recorder.operation_latency}, "dledger_operation")
        yield self.counter("heartbeats_refused", "Heartbeats of strangers, refused for lack of room. Ours.",
                           [((), core.active.liveness.refused)])
        yield from self.remoting(self._counters)


def _directory_bytes(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # the log was purged meanwhile
    return total
