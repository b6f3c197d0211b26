"""The page on metrics: its configuration is one of each server, and its table has each way for metrics to leave one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from broker import config as brokers
from controller import config as controllers
from controller.namesrv import config as name_servers
from remoting import properties
from remoting.daemon.exporter import NEEDS, MetricsKeys, Way

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()


@pytest.mark.parametrize("read", [
    brokers.from_properties, controllers.from_properties, name_servers.from_properties,
])
def test_the_configuration_of_the_page_is_taken_by_each_server(read: Callable[[dict[str, str]], MetricsKeys]) -> None:
    found = re.search(r"<!-- conf: otlp -->\n```properties\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    config = read(properties.parse(found[1]))
    assert (config.metrics_way, config.metrics_headers) == (Way.OTLP_GRPC, {"api-key": "k1"})
    assert config.metric_labels == {"zone": "z1", "aggregation": "delta"}
    assert config.metric_grpc_exporter_interval_in_mills == 15_000


def test_the_table_has_each_way_and_the_extra_it_needs() -> None:
    rows = re.findall(r"^\| `(\w+)`, `(\d)` \|.*\|([^|]*)\|$", PAGE, re.MULTILINE)
    assert {(name, number) for name, number, _ in rows} == {(way.name, way.value) for way in Way}
    for name, _, package in rows:
        extra = NEEDS[Way[name]][0] if Way[name] in NEEDS else ""
        assert package.strip() == (f"`pip install ./raft '.[{extra}]'`" if extra else "")
