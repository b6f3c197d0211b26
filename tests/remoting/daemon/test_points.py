"""Points of reports: cumulative and by difference, restarts, reports that were lost, and portions."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from remoting.daemon.points import KEPT_MAX, Distribution, Point, Reports, Series, line, portions

T = (("t", "a"),)


def page(sent: float, size: float = 7, waits: tuple[int, int, int] = (0, 0, 0)) -> list[Metric]:
    counter = CounterMetricFamily("sends", "what was sent", labels=["t"])
    counter.add_metric(["a"], sent)
    gauge = GaugeMetricFamily("size", "of all", labels=["t"])
    gauge.add_metric(["a"], size)
    spread = HistogramMetricFamily("wait", "of each", labels=["t"])
    upto = [sum(waits[: n + 1]) for n in range(3)]
    spread.add_metric(["a"], [("10", upto[0]), ("2.5e1", upto[1]), ("+Inf", upto[2])], sum_value=float(sum(waits)))
    return [counter, gauge, spread]


def values(series: list[Series]) -> dict[str, tuple[object, int]]:
    return {each.name: (each.points[0].value, each.points[0].since_ns) for each in series}


def test_what_a_page_says_by_names_and_kinds() -> None:
    series = Reports(100, delta=False).report(page(3, waits=(1, 2, 4)), 200)
    assert [(each.name, each.kind, each.about) for each in series] == [
        ("sends_total", "counter", "what was sent"), ("size", "gauge", "of all"), ("wait", "histogram", "of each")]
    assert series[0].points == (Point(T, 3.0, 100),)
    assert series[2].points == (Point(T, Distribution((10.0, 25.0), (1, 2, 4), 7.0), 100),)


def test_cumulative_points_count_since_the_start_and_anew_since_whoever_counts_did() -> None:
    reports = Reports(100, delta=False)
    assert values(reports.report(page(3), 200))["sends_total"] == (3.0, 100)
    assert values(reports.report(page(5, size=1), 300))["sends_total"] == (5.0, 100), "arrived or not"
    again = values(reports.report(page(2, size=0), 400))
    assert again["sends_total"] == (2.0, 300)
    assert again["size"][0] == 0.0
    assert values(reports.report(page(4), 500))["sends_total"] == (4.0, 300)


def test_differences_are_to_the_last_report_that_arrived() -> None:
    reports = Reports(100, delta=True)
    first = values(reports.report(page(3, waits=(1, 0, 0)), 200))
    assert (first["sends_total"], first["wait"][0]) == ((3.0, 100), Distribution((10.0, 25.0), (1, 0, 0), 1.0))
    reports.arrived()
    lost = values(reports.report(page(5, waits=(1, 1, 0)), 300))
    assert (lost["sends_total"], lost["wait"]) == ((2.0, 200), (Distribution((10.0, 25.0), (0, 1, 0), 1.0), 200))
    after = values(reports.report(page(9, waits=(1, 1, 3)), 400))
    assert (after["sends_total"], after["wait"]) == ((6.0, 200), (Distribution((10.0, 25.0), (0, 1, 3), 4.0), 200))
    reports.arrived()
    assert values(reports.report(page(1, size=2), 500))["sends_total"] == (1.0, 400), "it counts anew"
    assert values(reports.report(page(1, size=2), 600))["size"][0] == 2.0, "a gauge is what it is"


def test_a_point_that_comes_back_is_not_counted_twice_and_no_more_are_remembered_than_may_be() -> None:
    reports = Reports(0, delta=True)
    for shown in (page(3), []):
        reports.report(shown, 10)
        reports.arrived()
    last = reports.report(page(4), 10)
    reports.arrived()
    assert values(last)["sends_total"] == (1.0, 10)
    many = CounterMetricFamily("many", "", labels=["n"])
    for n in range(KEPT_MAX):
        many.add_metric([str(n)], 1)
    reports.report([many], 20)
    reports.arrived()
    assert len(reports._before) == KEPT_MAX


def test_portions_have_no_more_points_than_a_request_may() -> None:
    points = tuple(Point((("n", str(n)),), n, 0) for n in range(5))
    series = [Series("a", "", "gauge", points[:3]), Series("none", "", "gauge", ()), Series("b", "", "gauge", points)]
    made = list(portions(series, 4))
    assert [[(each.name, len(each.points)) for each in portion] for portion in made] == [
        [("a", 3), ("b", 1)], [("b", 4)]]
    assert [point for portion in made for each in portion for point in each.points] == [*points[:3], *points]
    assert list(portions([], 4)) == []


def test_a_point_is_said_in_a_log() -> None:
    assert line(Point((("t", "a"), ("g", "b")), 2.5, 0)) == "{t=a,g=b} 2.5"
    assert line(Point((), Distribution((1.0,), (2, 3), 9.5), 0)) == "{} count 5 sum 9.5"
