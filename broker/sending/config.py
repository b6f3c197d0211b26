"""The keys of sends. They are values: a live key comes as another configuration."""

from __future__ import annotations

import attrs

from remoting.record import BODY_BYTES_MAX


@attrs.frozen(kw_only=True)
class SendingConfig:
    """Keys of ``BrokerConfig`` and ``MessageStoreConfig`` and their defaults."""

    broker_cluster_name: str = "DefaultCluster"
    broker_ip1: str = "127.0.0.1"
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    enable_slave_acting_master: bool = False
    """True: a slave answers that its service is not available, not that it is busy."""
    max_message_size: int = BODY_BYTES_MAX
