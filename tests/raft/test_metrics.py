"""Metrics: what a scrape shows of statuses and events, within bounds, and the page that lists them."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from raft.explain import SITUATIONS
from raft.host import open_node
from raft.metrics import LABEL_SETS_MAX, Metrics, serve_metrics
from raft.status import Status
from raft.trace import BecameLeader, CommitAdvanced, Dropped, RoundEnded, Truncated, VoteCast
from tests.raft.served import Adder
from tests.raft.statuses import make_status

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@attrs.define
class Watched:
    seen: Status

    def status(self) -> Status:
        return self.seen


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """(name, labels but node and group) -> value."""
    return {
        (sample.name, frozenset((name, value) for name, value in sample.labels.items() if name not in ("node",
                                                                                                       "group"))):
            sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode()) for sample in family.samples}


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, frozenset(labels.items())]


def test_a_scrape_shows_the_status_of_that_moment() -> None:
    metrics = Metrics()
    node = Watched(make_status(counters={"batches": 3}, oldest_unsynced_ns=250_000_000))
    metrics.watch(node)
    assert value(metrics, "raft_is_leader") == 1
    assert value(metrics, "raft_commit_index") == 100
    assert value(metrics, "raft_oldest_unsynced_seconds") == 0.25
    assert value(metrics, "raft_batches_total") == 3
    assert value(metrics, "raft_peer_match_index", peer="n1") == 100
    assert value(metrics, "raft_peer_silent_seconds", peer="n2") == 0.02
    assert value(metrics, "raft_situation", situation="healthy") == 1
    node.seen = make_status(commit_index=105, faulted="it raised")
    assert value(metrics, "raft_commit_index") == 105
    assert value(metrics, "raft_faulted") == 1
    assert value(metrics, "raft_situation", situation="faulted") == 1


def test_nodes_are_told_apart_by_label() -> None:
    metrics = Metrics()
    metrics.watch(Watched(make_status(node_id="n0", term=4)))
    metrics.watch(Watched(make_status(node_id="n1", term=5)))
    text = metrics.exposition().decode()
    assert 'raft_term{group="1",node="n0"} 4.0' in text
    assert 'raft_term{group="1",node="n1"} 5.0' in text


def test_events_are_counted_by_what_they_say() -> None:
    metrics = Metrics()
    for result in ("ACCEPT", "ACCEPT", "REJECT_ALREADY_VOTED"):
        metrics(VoteCast(1, "n0", 1, 3, "n1", 4, False, result, (1, 1), (1, 1)))
    metrics(RoundEnded(1, "n0", 1, 3, 1, True, "PASSED", 2, 2))
    metrics(Truncated(1, "n0", 1, 3, 5, 9))
    metrics(CommitAdvanced(1, "n0", 1, 3, 5, True))
    assert value(metrics, "raft_votes_total", probe="false", result="accept") == 2
    assert value(metrics, "raft_votes_total", probe="false", result="reject_already_voted") == 1
    assert value(metrics, "raft_vote_rounds_total", probe="true", result="passed") == 1
    assert value(metrics, "raft_truncations_total") == 1


def test_elections_make_a_histogram() -> None:
    metrics = Metrics()
    for election_ms in (30, 300, 300, 60_000):
        metrics(BecameLeader(1, "n0", 1, 3, 1, 5, ("n0", "n1"), "no leader heard", 1, election_ms))
    assert value(metrics, "raft_election_seconds_bucket", le="0.05") == 1
    assert value(metrics, "raft_election_seconds_bucket", le="0.4") == 3
    assert value(metrics, "raft_election_seconds_bucket", le="12.8") == 3
    assert value(metrics, "raft_election_seconds_bucket", le="+Inf") == 4
    assert value(metrics, "raft_election_seconds_count") == 4
    assert value(metrics, "raft_election_seconds_sum") == pytest.approx(60.63)


def test_strangers_cannot_make_up_metrics_without_end() -> None:
    metrics = Metrics()
    for number in range(LABEL_SETS_MAX + 50):
        metrics(Dropped(1, "n0", 1, 3, "n1", "Append", f"reason {number}"))
    metrics(Dropped(1, "n0", 1, 3, "n1", "Append", "reason 7"))
    assert value(metrics, "raft_dropped_messages_total", message="append", reason="reason 7") == 2
    assert value(metrics, "raft_dropped_messages_total", message="other", reason="other") == 50
    assert len(samples(metrics)) == LABEL_SETS_MAX + 1


def test_other_counters_can_be_added() -> None:
    metrics = Metrics()
    metrics.watch_counters("transport", lambda: {"bytes_sent": 12})
    assert value(metrics, "raft_transport_bytes_sent_total") == 12


async def test_a_real_node_is_shown(tmp_path: Path) -> None:
    metrics = Metrics()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    peers = {"n0": f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"}
    with trio.fail_after(30):
        async with open_node("n0", peers, tmp_path / "n0", Adder(), bootstrap=True, listeners=listeners,
                             trace=metrics) as node:
            metrics.watch(node)
            await node.wait_leader()
            await node.propose(b"1")
            assert value(metrics, "raft_is_leader") == 1
            assert value(metrics, "raft_applied_index") == node.status().applied_index > 0
            assert value(metrics, "raft_election_seconds_count") == 1
            assert value(metrics, "raft_commands_applied_total") == 1
            assert value(metrics, "raft_vote_rounds_total", probe="false", result="passed") == 1


async def fetch(port: int, path: str) -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        data = b""
        while piece := await stream.receive_some():
            data += piece
    return data


async def test_metrics_are_served_over_http() -> None:
    metrics = Metrics()
    metrics.watch(Watched(make_status()))
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(serve_metrics, metrics, "127.0.0.1:0"))
        port = listeners[0].socket.getsockname()[1]
        head, body = (await fetch(port, "/metrics")).split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b'raft_is_leader{group="1",node="n0"} 1.0' in body
        assert b" 200 OK\r\n" in await fetch(port, "/healthz")
        metrics.watch(Watched(make_status(faulted="apply raised")))
        answer = await fetch(port, "/readyz")
        assert answer.startswith(b"HTTP/1.1 503 ") and b"apply raised" in answer
        assert answer.split(b"\r\n\r\n")[1] == (await fetch(port, "/healthz")).split(b"\r\n\r\n")[1]
        nursery.cancel_scope.cancel()


def test_the_page_lists_every_metric_and_situation() -> None:
    metrics = Metrics()
    metrics.watch(Watched(make_status(counters={"batches": 1})))
    metrics.watch_counters("transport", lambda: {"bytes_sent": 1})
    shown = {
        family.name for family in text_string_to_metric_families(metrics.exposition().decode())
        if family.name not in ("raft_batches", "raft_transport_bytes_sent")}
    listed = set(re.findall(r"^\| `(raft_[a-z_]+?)(?:_total)?` \|", PAGE.read_text(), re.MULTILINE))
    assert listed == shown
    told = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(), re.MULTILINE))
    names = {name for name, _ in SITUATIONS} | {"healthy"}
    assert names <= told
