"""The keys of overload protection, with RocketMQ's names and defaults. They are values, without I/O."""

from __future__ import annotations

import attrs

from remoting.daemon.keys import key


def _wait(default: int, about: str) -> int:
    made: int = key(default, f"{about} that waited here for so long are answered SYSTEM_BUSY", least=0,
                    most=2**31 - 1, live=True)
    return made


@attrs.frozen(kw_only=True)
class OverloadKeys:
    """The broker's configuration keys for how long requests may wait, ms."""

    broker_fast_failure_enable: bool = key(True, "answer what waited too long in place of carrying it out", live=True)
    wait_time_mills_in_send_queue: int = _wait(200, "sends")
    wait_time_mills_in_pull_queue: int = _wait(5_000, "pulls")
    wait_time_mills_in_lite_pull_queue: int = _wait(5_000, "pulls of lite consumers")
    wait_time_mills_in_heartbeat_queue: int = _wait(31_000, "heartbeats of clients")
    wait_time_mills_in_transaction_queue: int = _wait(3_000, "ends of transactions")
    wait_time_mills_in_ack_queue: int = _wait(3_000, "acknowledgements of POP")
    wait_time_mills_in_admin_broker_queue: int = _wait(5_000, "requests of operators and of brokers")
    os_page_cache_busy_time_out_mills: int = key(
        1_000, "while the system takes so long for a write of the log, sends are answered SYSTEM_BUSY", least=1,
        most=2**31 - 1, live=True)
