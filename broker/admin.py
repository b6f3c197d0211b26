"""Answers operators' requests about a whole broker (codes 25, 26, 28, 907, 908, 1007).

Source: ``AdminBrokerProcessor`` of RocketMQ 5.5.0. Unlike there, an unknown key, or a value that the broker could not
start with, is refused in words. It knows what is asked, and gets the answers from functions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from broker.config import BrokerConfig, check, from_properties, listing, live_keys, to_properties
from broker.part import Part
from broker.settings import check_parts
from broker.standing import Standing
from remoting import properties
from remoting.bodies.broker import HARuntimeInfo
from remoting.bodies.controller import EpochEntry, EpochEntryCache
from remoting.bodies.namesrv import KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.daemon.changing import change_config
from remoting.daemon.files import Files
from remoting.endpoint import Handler
from remoting.headers.broker import GetBrokerConfigResponse, ResetMasterFlushOffsetRequest
from remoting.headers.namesrv import NotifyMinBrokerIdChangeRequest

logger = logging.getLogger("broker.admin")

CONFIG_BYTES_MAX: Final = 1 << 20
TABLES: Final = ("topics", "subscriptiongroups", "consumeroffsets")
"""Names of the tables that request 355 takes, in upper or lower case."""
NOT_OFFERED: Final[dict[int, str]] = {
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS:
        "consume queues are files in this broker: there are none in RocksDB to compare them with",
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC:
        "static topics are not offered by this broker; updateTopic makes a topic with queues of its own",
}


@attrs.define(eq=False)
class Administration(Part):
    """Answers operators. ``config`` is the present one; ``changed`` is told of a new one; ``version``: the topics'."""

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
    _set_master_flushed: Callable[[int], None]
    _least_id_changed: Callable[[], None]
    """Called when a name server says that the group's smallest id has changed."""

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.state,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_master_flush_offset,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.least_id_changed,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.role_told,  # under controllers another part handles it
            RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: self.tables_as_json,
            **dict.fromkeys(map(int, NOT_OFFERED), self.not_offered),
        }

    # --- configuration ---------------------------------------------------------------------------------------

    def get_config(self, _: Connection, request: Command) -> Command:
        """Code 26: this broker's configuration."""
        return response(request, header=GetBrokerConfigResponse(self._version().decode()),
                        body=properties.encode(listing(self.config)).encode())

    def update_config(self, connection: Connection, request: Command) -> Command:
        """Change keys (25). A change that a running broker cannot follow is written down for its next start."""
        return change_config(
            connection, request, self.config, bytes_max=CONFIG_BYTES_MAX, barred=self.config.black_list,
            live=live_keys(type(self.config)), made=self._made, text=to_properties, files=self._files,
            path=self._config_path, use=self._use, logger=logger)

    def _made(self, given: Mapping[str, str]) -> BrokerConfig:
        changed = from_properties(given, start=self.config)
        check(changed)
        check_parts(changed)
        return changed

    def _use(self, changed: BrokerConfig) -> None:
        self.config = changed
        self._changed(changed)

    # --- what means little here ------------------------------------------------------------------------------

    def least_id_changed(self, _: Connection, request: Command) -> Command:
        """Answer 905. Where slaves may act, name servers are asked now which members live. Raises ``HeaderError``."""
        if NotifyMinBrokerIdChangeRequest.from_ext(request.ext).broker_name in (
                None, "", self._standing.broker_name):
            self._least_id_changed()
        return response(request)

    def role_told(self, _: Connection, request: Command) -> Command:
        """Answer 1008 without controllers: nothing changes, as in ``AdminBrokerProcessor`` of RocketMQ 5.5.0."""
        return response(request)

    def tables_as_json(self, _: Connection, request: Command) -> Command:
        """Answer 355. Tables are JSON files here, so nothing is left to do, as in a Java broker without RocksDB."""
        given = (request.ext.get("configType") or "").split(";")
        unknown = [name for name in given if name and name.lower() not in TABLES]
        if unknown or not any(given):
            return response(request, ResponseCode.SYSTEM_ERROR, remark=(
                f"configType: {unknown[0][:40] if unknown else 'nothing'} is no table; {', '.join(TABLES)} are"))
        return response(request)

    def not_offered(self, _: Connection, request: Command) -> Command:
        """Answer 354 and 513: this broker does not have that, and says what it has instead."""
        return response(request, ResponseCode.SYSTEM_ERROR, remark=NOT_OFFERED[request.code])

    # --- state -----------------------------------------------------------------------------------------------

    def state(self, _: Connection, request: Command) -> Command:
        """Code 28: what this broker does and has, in a table."""
        return response(request, body=KVTable(dict(self._state())).to_json())

    def ha_status(self, _: Connection, request: Command) -> Command:
        """Code 907: how far replication has come."""
        return response(request, body=self._replication().to_json())

    def reset_master_flush_offset(self, _: Connection, request: Command) -> Command:
        """Set what a slave shows in 907 and keeps for a Java broker that opens its store (908). A master has none."""
        offset = ResetMasterFlushOffsetRequest.from_ext(request.ext).master_flush_offset
        if not self._standing.role.leads and offset is not None:
            self._set_master_flushed(offset)
        return response(request)

    def epochs(self, _: Connection, request: Command) -> Command:
        """Code 1007: the epochs of this broker's log."""
        entries = self._epochs()
        if entries is None:
            return response(request, ResponseCode.SYSTEM_ERROR, remark="this broker is not in controller mode")
        standing = self._standing
        return response(request, body=EpochEntryCache(
            standing.cluster_name, standing.broker_name, standing.role.broker_id, entries, self._log_end()).to_json())
