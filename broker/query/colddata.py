"""Cold data: how much of it groups may read (codes 2001 to 2003), and how the log's files are read (2004).

Thresholds are kept and told, and limit nothing: flow control of cold reads is not offered, as in a Java broker with
``coldDataFlowControlEnable=false``, its default. They are gone after a stop, as there. Source: ``AdminBrokerProcessor``
and ``ColdDataCgCtrService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.fastjson import dumps
from remoting.fields import decimal, shown
from remoting.headers.broker import SetReadAheadRequest

logger = logging.getLogger("broker")

BODY_BYTES_MAX: Final = 1 << 16
GROUPS_MAX: Final = 10_000
CG_COLD_READ_THRESHOLD: Final = 3 << 20
"""``cgColdReadThreshold`` of RocketMQ: bytes of one group."""
GLOBAL_COLD_READ_THRESHOLD: Final = 100 << 20
"""``globalColdReadThreshold``: bytes of all groups."""
SEQUENTIAL, RANDOM = 0, 1
"""``MADV_NORMAL`` and ``MADV_RANDOM``."""


class ColdData:
    """Handles these codes. ``read_ahead`` says whether the system may read ahead in the log."""

    def __init__(self, read_ahead: Callable[[bool], None]) -> None:
        self._read_ahead = read_ahead
        self.thresholds: dict[str, int] = {}

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self.allow,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self.forget,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.info,
            RequestCode.SET_COMMITLOG_READ_MODE: self.read_mode,
        }

    def allow(self, _: Connection, request: Command) -> Command:
        """Set thresholds of groups (2001). A value that is no number is refused; Java passes over it."""
        if len(request.body) > BODY_BYTES_MAX:
            return _refused(request, f"the body has more than {BODY_BYTES_MAX} bytes")
        given: dict[str, int] = {}
        for group, text in properties.parse(request.body.decode(errors="replace")).items():
            threshold = decimal(text)
            if threshold is None:
                return _refused(request, f"the threshold of group {shown(group)} is no number: {shown(text)}")
            given[group] = threshold
        if len(self.thresholds | given) > GROUPS_MAX:
            return _refused(request, f"thresholds are kept for {GROUPS_MAX} groups at most; remove some (2002)")
        self.thresholds |= given
        return response(request)

    def forget(self, _: Connection, request: Command) -> Command:
        """Remove the threshold of a group (2002)."""
        self.thresholds.pop(request.body[:BODY_BYTES_MAX].decode(errors="replace"), None)
        return response(request)

    def info(self, _: Connection, request: Command) -> Command:
        """Answer 2003 with a JSON object of thresholds; it has no counts of reads, since none are counted."""
        return response(request, body=dumps({
            "runtimeTable": {}, "configTable": self.thresholds, "cgColdReadThreshold": CG_COLD_READ_THRESHOLD,
            "globalColdReadThreshold": GLOBAL_COLD_READ_THRESHOLD, "globalAcc": 0}))

    def read_mode(self, connection: Connection, request: Command) -> Command:
        """Set how the log is read (2004), for files that are open and for those to come."""
        if "READ_AHEAD_MODE" not in request.ext:
            return response(request, ResponseCode.SYSTEM_ERROR, remark="set commitlog readahead mode param error")
        mode = SetReadAheadRequest.from_ext(request.ext).mode
        if mode not in (SEQUENTIAL, RANDOM):
            return response(
                request, ResponseCode.INVALID_PARAMETER, remark="set commitlog readahead mode param value error")
        logger.info("%s sets how the log is read: mode %d", connection.peer, mode)
        self._read_ahead(mode == SEQUENTIAL)
        return response(request, remark=f"set commitlog readahead mode success, mode: {mode}")


def _refused(request: Command, why: str) -> Command:
    return response(request, ResponseCode.SYSTEM_ERROR, remark=why)
