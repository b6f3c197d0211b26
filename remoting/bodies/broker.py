"""Bodies that brokers answer to administrators. More of them come with the broker."""

from __future__ import annotations

import attrs

from remoting.body import Body, body
from remoting.fields import Int32, Int64


@body
class HAConnectionRuntimeInfo(Body):
    """A master's view of one slave."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


@body
class HAClientRuntimeInfo(Body):
    """A slave's view of its master. Times in milliseconds of its wall clock."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0
    is_activated: bool | None = None
    """Java reads it and never writes it."""


@body
class HARuntimeInfo(Body):
    """Answer to 907. ``in_sync_slave_nums`` leaves out the master."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = attrs.field(factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = HAClientRuntimeInfo()
