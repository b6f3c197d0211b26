"""What of two pages of metrics is compared."""

from __future__ import annotations

from harness.scenarios.interop.metrics import Family, families

PAGE = """# HELP rocketmq_timer_enqueue_lag Timer enqueue lag
# TYPE rocketmq_timer_enqueue_lag gauge
rocketmq_timer_enqueue_lag{cluster="c",node_id="a"} 0.0
# TYPE rocketmq_finish_message_latency_milliseconds histogram
rocketmq_finish_message_latency_milliseconds_bucket{topic="T=\\"x",le="5.0"} 1.0
rocketmq_finish_message_latency_milliseconds_sum{topic="T"} 1.0
# TYPE rocketmq_half_messages gauge
# TYPE rocketmq_messages_in_total counter
rocketmq_messages_in_total{topic="T"} 3.0
"""


def test_names_kinds_and_labels_of_what_waits() -> None:
    assert families(PAGE) == {
        "rocketmq_timer_enqueue_lag": Family("gauge", {"cluster", "node_id"}),
        "rocketmq_finish_message_latency_milliseconds": Family("histogram", {"topic", "le"}),
        "rocketmq_half_messages": Family("gauge", set())}
