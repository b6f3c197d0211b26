"""Shows a node's state and events as Prometheus metrics, and its health in words. Needs the extra ``metrics``.

State is read when somebody asks (``Node.status``), so it costs nothing in between; events are counted as they come,
with one look at their type. Knows statuses and the event vocabulary; ``raft.monitoring`` shows it over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import trio

from raft import probes
from raft.explain import diagnose
from raft.monitoring import Exposed, serve_monitoring
from raft.status import PeerStatus, Status
from raft.trace import (
    BecameLeader,
    Dropped,
    Event,
    RoundEnded,
    SnapshotInstalled,
    StorageTrouble,
    Transfer,
    Truncated,
    VoteCast,
)

try:
    from prometheus_client import generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector, CollectorRegistry
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("raft.metrics needs prometheus-client: pip install 'quorate-raft[metrics]'") from missing

LABEL_SETS_MAX: Final = 100
"""Label sets of one event that are counted apart; all further ones are counted together as ``other``."""
ELECTION_BUCKETS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)

Metric = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_NODE_LABELS: Final = ("node", "group")

_GAUGES: Final[tuple[tuple[str, str, Callable[[Status], float]], ...]] = (
    ("is_leader", "1 on the leader.", lambda s: s.leads),
    ("leader_known", "1 while a leader is known.", lambda s: s.leader is not None),
    ("term", "Current term.", lambda s: s.term),
    ("leadership_seq", "Leaderships of this process so far.", lambda s: s.leadership_seq),
    ("commit_index", "Last entry known to be committed.", lambda s: s.commit_index),
    ("applied_index", "Last entry applied to the state machine.", lambda s: s.applied_index),
    ("durable_index", "Last entry on this node's disk.", lambda s: s.durable_index),
    ("last_index", "Last entry of the log.", lambda s: s.last_index),
    ("purged_index", "Last entry that is gone from the log.", lambda s: s.purged_index),
    ("snapshot_index", "Last entry in the newest snapshot.", lambda s: s.snapshot_index),
    ("snapshot_bytes", "Size of the newest snapshot.", lambda s: s.snapshot_size),
    ("voters", "Voters of the membership in effect.", lambda s: len(s.membership.voters)),
    ("learners", "Learners of the membership in effect.", lambda s: len(s.membership.learners)),
    ("joint", "1 while a membership change is half done.", lambda s: s.membership.joint),
    ("pending_proposals", "Proposals without a result.", lambda s: s.pending_proposals),
    ("pending_bytes", "Bytes of proposals without a result.", lambda s: s.pending_bytes),
    ("pending_reads", "Reads that wait.", lambda s: s.pending_reads),
    ("unsynced_writes", "Writes on their way to the disk.", lambda s: s.unsynced_writes),
    ("oldest_unsynced_seconds", "Age of the oldest write on its way to the disk.", lambda s: (s.oldest_unsynced_ns or 0)
    / 1e9),
    ("lease_valid", "1 while the leader may answer lease reads.", lambda s: s.lease_valid),
    ("lease_remaining_seconds", "Time that is left of the lease.", lambda s: s.lease_remaining_ns / 1e9),
    ("faulted", "1 once the node has stopped for good.", lambda s: s.faulted is not None),
    ("disk_full", "1 while the disk is full.", lambda s: s.storage == "full"),
    ("refused_peers", "Nodes whose latest handshake was refused.", lambda s: len(s.refusals)),
)

_PEER_GAUGES: Final[tuple[tuple[str, str, Callable[[PeerStatus], float]], ...]] = (
    ("peer_connected", "1 while a connection stands.", lambda p: p.connected),
    ("peer_match_index", "Last entry known to be on its disk (leader only).", lambda p: p.match),
    ("peer_inflight_bytes", "Bytes sent to it without an answer (leader only).", lambda p: p.inflight_bytes),
    ("peer_silent_seconds", "Time since it was last heard (leader only).", lambda p: (p.silent_ns or 0) / 1e9),
)

_COUNTED: Final[dict[type[Event], tuple[str, str, tuple[str, ...]]]] = {
    Truncated: ("truncations", "Conflicting suffixes of the log that were dropped.", ()),
    VoteCast: ("votes", "Answers to requests for a vote.", ("probe", "result")),
    RoundEnded: ("vote_rounds", "Finished rounds of own candidacies.", ("probe", "result")),
    SnapshotInstalled: ("snapshots_installed", "Snapshots taken from a leader.", ()),
    Transfer: ("transfers", "Steps of handing leadership over.", ("state",)),
    StorageTrouble: ("storage_troubles", "Reports of a disk in trouble.", ("kind",)),
    Dropped: ("dropped_messages", "Peer messages that were not taken.", ("message", "reason")),
}
"""Kind of event -> metric, help, and the event's fields that become labels."""


class Watched(Protocol):
    """The part of ``Node`` that metrics read."""

    def status(self) -> Status: ...


class Metrics(Collector):
    """A ``Trace`` for ``open_node`` and a collector for Prometheus in one. ``watch`` the nodes, then ``exposition``."""

    def __init__(self) -> None:
        self._nodes: list[Watched] = []
        self._groups: list[tuple[str, Callable[[], Mapping[str, int]]]] = []
        self._events: dict[tuple[type[Event], tuple[str, ...]], int] = {}
        self._kinds: dict[type[Event], int] = dict.fromkeys(_COUNTED, 0)
        self._elections: dict[tuple[str, str], list[float]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def watch(self, node: Watched) -> None:
        """Report this node from now on."""
        self._nodes.append(node)

    def watch_counters(self, prefix: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Report other counters, such as ``host.transport.counters.as_dict``, as ``raft_<prefix>_<name>_total``."""
        self._groups.append((prefix, read))

    def __call__(self, event: Event) -> None:
        """Count one event. Most kinds are not counted, so the first line returns."""
        counted = _COUNTED.get(type(event))
        if counted is not None:
            self._count(event, counted[2])
        elif isinstance(event, BecameLeader):
            where = (event.node, str(event.group))
            buckets = self._elections.setdefault(where, [0.0] * (len(ELECTION_BUCKETS_S) + 2))
            seconds = event.election_ms / 1e3
            place = sum(seconds > bound for bound in ELECTION_BUCKETS_S)
            buckets[place] += 1
            buckets[-1] += seconds

    def _count(self, event: Event, fields: tuple[str, ...]) -> None:
        kind = type(event)
        labels = (event.node, str(event.group), *(str(getattr(event, name)).lower() for name in fields))
        if (kind, labels) not in self._events:
            if self._kinds[kind] >= LABEL_SETS_MAX:
                labels = (event.node, str(event.group), *("other" for _ in fields))
            self._kinds[kind] += 1
        self._events[kind, labels] = self._events.get((kind, labels), 0) + 1

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def unhealthy(self) -> str:
        """Return the reason why a watched node has stopped for good; "" if none has."""
        return probes.unhealthy(node.status() for node in self._nodes)

    def unready(self) -> str:
        """Return the reason why a watched node does not serve, or words that none is watched; "" if all serve."""
        return probes.unready(node.status() for node in self._nodes)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as of now."""
        statuses = [node.status() for node in self._nodes]
        yield from _gauges(statuses)
        yield from _node_counters(statuses)
        for kind, (name, text, fields) in _COUNTED.items():
            family = CounterMetricFamily(f"raft_{name}", text, labels=(*_NODE_LABELS, *fields))
            for (counted, labels), number in self._events.items():
                if counted is kind:
                    family.add_metric(labels, number)
            yield family
        elections = HistogramMetricFamily(
            "raft_election_seconds", "From candidacy to leadership, of elections won.", labels=_NODE_LABELS)
        for where, buckets in self._elections.items():
            elections.add_metric(where, _cumulate(buckets[:-1]), sum_value=buckets[-1])
        yield elections
        for prefix, read in self._groups:
            for name, number in sorted(read().items()):
                yield CounterMetricFamily(f"raft_{prefix}_{name}", f"{prefix}: {name}.", value=number)


def _labels(status: Status) -> tuple[str, str]:
    return status.node_id, str(status.group)


def _gauges(statuses: Iterable[Status]) -> Iterator[Metric]:
    for name, text, read in _GAUGES:
        gauge = GaugeMetricFamily(f"raft_{name}", text, labels=_NODE_LABELS)
        for status in statuses:
            gauge.add_metric(_labels(status), float(read(status)))
        yield gauge
    for name, text, read_peer in _PEER_GAUGES:
        gauge = GaugeMetricFamily(f"raft_{name}", text, labels=(*_NODE_LABELS, "peer"))
        for status in statuses:
            for peer in status.peers:
                gauge.add_metric((*_labels(status), peer.node_id), float(read_peer(peer)))
        yield gauge
    situations = GaugeMetricFamily(
        "raft_situation", "1 for each situation that explain names.", labels=(*_NODE_LABELS, "situation"))
    for status in statuses:
        for situation in dict(diagnose(status)):
            situations.add_metric((*_labels(status), situation), 1)
    yield situations


def _node_counters(statuses: Iterable[Status]) -> Iterator[Metric]:
    for name in sorted({name for status in statuses for name in status.counters}):
        counter = CounterMetricFamily(f"raft_{name}", f"Since the start: {name}.", labels=_NODE_LABELS)
        for status in statuses:
            if name in status.counters:
                counter.add_metric(_labels(status), status.counters[name])
        yield counter


def _cumulate(buckets: list[float]) -> list[tuple[str, float]]:
    total, out = 0.0, []
    for bound, number in zip((*map(str, ELECTION_BUCKETS_S), "+Inf"), buckets, strict=True):
        total += number
        out.append((bound, total))
    return out


async def serve_metrics(
    metrics: Exposed, listen: str, *, task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer ``GET /metrics`` at ``listen`` (``host:port``), as a task, until cancelled; ``Metrics`` also show health.

    Reports its listeners. Raises ``ConfigError`` for a bad address, ``OSError`` for one that cannot be used.
    """
    await serve_monitoring(metrics, listen, task_status=task_status)
