"""Whose a trace file is, where several clusters have nodes of one name."""

from __future__ import annotations

import pytest

from analysis.source.finding import Home
from analysis.views.traces import cluster_of

KNOWN = [Home("east", "n0", "/data/east/n0"), Home("west", "n0", "/data/west/n0"), Home("west", "n1", "/data/west/n1")]


@pytest.mark.parametrize(("file", "node", "cluster"), [
    ("/data/east/n0/trace.ndjson", "n0", "east"),
    ("/data/west/traces/n0.ndjson", "n0", "west"),
    ("/var/log/n1.ndjson", "n1", "west"),          # there is one n1 only
    ("/var/log/n0.ndjson", "n0", None),            # as near to one as to the other
    ("/data/eastern/n0.ndjson", "n0", None),
    ("/data/west/n9.ndjson", "n9", None),
])
def test_the_nearest_node_of_that_name(file: str, node: str, cluster: str | None) -> None:
    assert cluster_of(file, node, KNOWN) == cluster


def test_the_only_cluster_has_them_all() -> None:
    assert cluster_of("/var/log/n9.ndjson", "n9", KNOWN[:1]) == "east"
