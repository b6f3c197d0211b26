"""Decides how many bytes of the log the next frame to a slave has: batches, larger ones to catch up, and flow control.

Source: ``FlowMonitor`` and ``haTransferBatchSize`` of RocketMQ. Told the time; it knows numbers only.
"""

from __future__ import annotations

import attrs

from broker.ha.config import HaConfig


@attrs.define
class Pace:
    """Flow control of one connection, since ``refilled_ns``."""

    config: HaConfig
    refilled_ns: int
    _allowance: float = attrs.field(init=False)
    """Bytes that flow control lets through now."""

    def __attrs_post_init__(self) -> None:
        self._allowance = float(self.config.flow_control_bytes_per_second)

    def take(self, behind: int, in_file: int, now_ns: int) -> int:
        """Return how many of the bytes that the slave is ``behind`` to send, ``in_file`` at most; 0: wait 100 ms."""
        assert behind > 0 and in_file > 0, "there is something to send"
        batch, rate = self.config.transfer_batch_bytes, self.config.flow_control_bytes_per_second
        if not rate:
            return min(max(batch, self.config.catch_up_batch_bytes), behind, in_file)
        refill = rate * (now_ns - self.refilled_ns) / 1e9
        self._allowance, self.refilled_ns = min(float(rate), self._allowance + refill), now_ns
        size = min(batch, behind, in_file, rate)
        if size > self._allowance:  # wait: frames of the little that is allowed would be mostly headers
            return 0
        self._allowance -= size
        assert 0 <= self._allowance <= rate, "no second's worth is lent or saved up"
        return size
