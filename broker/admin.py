"""What operators ask of a whole broker: configuration, state, replication (codes 25, 26, 28, 907, 908, 1007).

Source: ``AdminBrokerProcessor`` of RocketMQ 5.5.0. Unlike there a key that nobody knows, or a value that the broker
could not start with, is refused in words. Knows what is asked, and gets the answers from functions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from broker.config import BrokerConfig, check, from_properties, listing, live_keys, to_properties
from broker.standing import Standing
from remoting import properties
from remoting.bodies.broker import HARuntimeInfo
from remoting.bodies.controller import EpochEntry, EpochEntryCache
from remoting.bodies.namesrv import KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.daemon.files import Files
from remoting.daemon.keys import ConfigError
from remoting.daemon.tls import hidden
from remoting.endpoint import Handler
from remoting.headers.broker import GetBrokerConfigResponse

logger = logging.getLogger("broker.admin")

CONFIG_BYTES_MAX: Final = 1 << 20


@attrs.define(eq=False)
class Administration:
    """``config`` is the present one. ``changed`` is told of a new one, ``version`` is the topics' as text."""

    config: BrokerConfig
    _config_path: str
    _files: Files
    _standing: Standing
    _changed: Callable[[BrokerConfig], None]
    _version: Callable[[], bytes]
    _state: Callable[[], Mapping[str, str]]
    _replication: Callable[[], HARuntimeInfo]
    _epochs: Callable[[], list[EpochEntry] | None]
    """None: no controller rules this broker."""
    _log_end: Callable[[], int]

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_master_flush_offset,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
        }

    # --- configuration ---------------------------------------------------------------------------------------

    def get_config(self, _: Connection, request: Command) -> Command:
        """26."""
        return response(request, header=GetBrokerConfigResponse(self._version().decode()),
                        body=properties.encode(listing(self.config)).encode())

    def update_config(self, connection: Connection, request: Command) -> Command:
        """25. What a running broker cannot follow is written down for its next start."""
        if len(request.body) > CONFIG_BYTES_MAX:
            return response(request, ResponseCode.SYSTEM_ERROR,
                            remark=f"a body of {len(request.body)} bytes; at most {CONFIG_BYTES_MAX} are taken")
        try:
            given = properties.parse(request.body.decode())
        except (UnicodeDecodeError, ValueError) as error:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=f"not properties: {error}")
        barred = sorted(self.config.black_list & given.keys())
        if barred:
            return response(request, ResponseCode.NO_PERMISSION,
                            remark=f"Can not update config in black list: {', '.join(barred)}")
        if not given:
            return response(request)
        try:
            changed = from_properties(given, start=self.config)
            check(changed)
            self._files.replace(self._config_path, properties.encode(to_properties(changed)).encode())
        except ConfigError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
        except OSError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=f"cannot write {self._config_path}: {error}")
        self.config = changed
        waiting = sorted(given.keys() - live_keys())
        logger.warning("configuration changed", extra={
            "peer": connection.peer, "keys": hidden(dict(sorted(given.items()))), "at_next_start": waiting})
        self._changed(changed)
        return response(request, remark=f"at the next start: {', '.join(waiting)}" if waiting else None)

    # --- state -----------------------------------------------------------------------------------------------

    def runtime_info(self, _: Connection, request: Command) -> Command:
        """28."""
        return response(request, body=KVTable(dict(self._state())).to_json())

    def ha_status(self, _: Connection, request: Command) -> Command:
        """907."""
        return response(request, body=self._replication().to_json())

    @staticmethod
    def reset_master_flush_offset(_: Connection, request: Command) -> Command:
        """908. Nothing here depends on that offset: a slave's log is compared with its master's when they meet."""
        return response(request)

    def epochs(self, _: Connection, request: Command) -> Command:
        """1007."""
        entries = self._epochs()
        if entries is None:
            return response(request, ResponseCode.SYSTEM_ERROR, remark="this broker is not in controller mode")
        standing = self._standing
        return response(request, body=EpochEntryCache(
            standing.cluster_name, standing.broker_name, standing.broker_id, entries, self._log_end()).to_json())
