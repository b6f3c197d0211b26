"""The page of metrics in Prometheus' words, read back by its own parser."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from prometheus_client.parser import text_string_to_metric_families

from remoting.daemon.latency import Latency
from remoting.daemon.page import Metric, Page


@attrs.define
class Sums:
    frames: int = 7
    last_error: str = "none"
    """No number: not on the page."""
    share: float = 0.5


class Shown(Page):
    """A page of the metrics given."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.latency = Latency((1, 10), 1)
        self.names: dict[str, Latency] = {}
        super().__init__(labels)

    def collect(self) -> Iterator[Metric]:
        yield self.gauge("level", "Of water.", [((name,), 1.5) for name in self.names], "pool")
        yield self.counter("floods", "Of water.", [((), 3)])
        yield self.histogram("waits", "Of all.", self.names, "pool")
        yield from self.totals("sums", "Of sums.", Sums())


def lines(page: Shown) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(page.exposition().decode()) for sample in family.samples}


def test_every_line_has_the_servers_labels() -> None:
    page = Shown({"cluster": 'a"b\\c\nd'})
    ours = ("cluster", 'a"b\\c\nd')
    assert lines(page) == {("floods_total", (ours,)): 3, ("sums_frames_total", (ours,)): 7}


def test_what_nobody_counted_yet_has_a_name_and_no_line() -> None:
    page = Shown({})
    text = page.exposition().decode()
    assert "# TYPE waits histogram" in text and "waits_bucket" not in text and "level{" not in text


def test_a_histogram_counts_up_to_all_and_keeps_its_sum() -> None:
    page = Shown({"cluster": "c"})
    page.names = {"x": page.latency, "y": Latency((1, 10), 1)}
    for seconds in (0.0, 1.0, 1.5, 10.5, 1e9):
        page.latency.add(seconds)

    found = {(name, labels["pool"], labels.get("le", "")): value
             for (name, pairs), value in lines(page).items() if (labels := dict(pairs)).get("pool")}
    assert found == {
        ("level", "x", ""): 1.5, ("level", "y", ""): 1.5,
        ("waits_bucket", "x", "1"): 2, ("waits_bucket", "x", "10"): 3, ("waits_bucket", "x", "+Inf"): 5,
        ("waits_count", "x", ""): 5, ("waits_sum", "x", ""): 0 + 1 + 1.5 + 10.5 + 1e9,
        ("waits_bucket", "y", "1"): 0, ("waits_bucket", "y", "10"): 0, ("waits_bucket", "y", "+Inf"): 0,
        ("waits_count", "y", ""): 0, ("waits_sum", "y", ""): 0}
    assert len(list(page.families())) == 4
