"""Settings of a broker in a group under controllers: who it is, whom it asks, how often.

It knows numbers and their relations, and nothing of who uses them.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class ManagerConfig:
    """RocketMQ's keys and defaults. By ``address`` clients and controllers know this broker."""

    cluster_name: str
    broker_name: str
    address: str
    controllers: tuple[str, ...]
    heartbeat_interval_ms: int = 1_000
    heartbeat_timeout_ms: int = 10_000
    election_priority: int = 2**31 - 1
    master_lease_ms: int = 5_000
    min_in_sync_replicas: int = 1
    all_ack_in_sync_state_set: bool = False
    learner: bool = False
    request_timeout_ms: int = 3_000
    sync_controller_metadata_period_ms: int = 10_000
    sync_broker_metadata_period_ms: int = 5_000
    retry_ms: int = 1_000
    elect_retry_ms: int = 5_000
    yield_wait_ms: int = 750
    silence_ms: int = 2_000
    """``haSilenceMs``."""
    probe_interval_ms: int = 500
    """``haBeatIntervalMs``; 0: nobody is probed."""

    def __attrs_post_init__(self) -> None:
        if not self.controllers:
            raise ValueError("controllerAddr names no controller; with enableControllerMode it must name one at least")
        if self.master_lease_ms >= self.heartbeat_timeout_ms:
            raise ValueError(f"masterLeaseMs is {self.master_lease_ms}, not below the heartbeat timeout of "
                             f"{self.heartbeat_timeout_ms} ms: another master could be elected before this one fences "
                             "itself")
