"""Headers of the broker's codes that controllers, name servers and tools need; 907 and 1007 have none.

Field names are those of the Java header classes. The broker brings the rest.
"""

from __future__ import annotations

from remoting.fields import Int32, wire_name
from remoting.header import Header, Int64, header


@header
class ExchangeHAInfoRequest(Header):
    """906, ``ExchangeHAInfoRequestHeader``. A master tells all three; who leaves out the first asks for them."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@header
class ExchangeHAInfoResponse(Header):
    """Answer to 906, filled in by a master that was asked."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@header
class ResetMasterFlushOffsetRequest(Header):
    """908, ``ResetMasterFlushOffsetHeader``: how far a slave's master has flushed its log."""

    master_flush_offset: Int64 | None = None


@header
class GetBrokerConfigResponse(Header):
    """Answer to 26: the topics' ``DataVersion`` as JSON."""

    version: str = ""


@header
class SetReadAheadRequest(Header):
    """2004. 0: the system may read ahead in the log's files, 1: reads come here and there."""

    mode: Int32 = wire_name("READ_AHEAD_MODE")


@header
class AddBrokerRequest(Header):
    """902, ``AddBrokerRequestHeader``: a file that the container can read."""

    config_path: str = ""


@header
class RemoveBrokerRequest(Header):
    """903, ``RemoveBrokerRequestHeader``: by the names of its file."""

    broker_cluster_name: str
    broker_name: str
    broker_id: Int64
