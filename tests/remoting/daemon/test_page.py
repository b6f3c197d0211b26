"""A page of metrics: every line has the server's labels."""

from __future__ import annotations

from collections.abc import Iterator

from remoting.daemon.page import Metric, Page


class Numbers(Page):
    def collect(self) -> Iterator[Metric]:
        yield self.gauge("answers", "How many.", [((), 42)])
        yield self.counter("asked", "By whom.", [(("a",), 1), (("b",), 2)], "who")


def test_the_page_has_the_labels_on_its_lines() -> None:
    body = Numbers({"cluster": "c"}).exposition()
    assert b'answers{cluster="c"} 42.0' in body
    assert b'asked_total{cluster="c",who="b"} 2.0' in body
