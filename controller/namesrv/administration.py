"""Requests of operators: topics by hand, the key-value table, the configuration.

Knows headers, bodies and the tables; the rules are in ``topics`` and ``kvconfig``. Sans-IO.

Source: ``DefaultRequestProcessor`` of Apache RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from controller.namesrv import topics
from controller.namesrv.config import NamesrvConfig, from_properties, listing, live_keys, to_properties
from controller.namesrv.effects import Effect, Save
from controller.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KVConfig, KVTableFull
from controller.namesrv.tables import Tables
from remoting import properties
from remoting.bodies.namesrv import KVTable, TopicList, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.daemon.edits import Edit
from remoting.daemon.keys import ConfigError, names
from remoting.headers.namesrv import (
    AddWritePermResponse,
    BrokerNameRequest,
    DeleteTopicRequest,
    GetTopicsByClusterRequest,
    KVKeyRequest,
    KVNamespaceRequest,
    KVValueResponse,
    PutKVConfigRequest,
    RegisterTopicRequest,
    WipeWritePermResponse,
)

Handler: TypeAlias = Callable[[int, Hashable, Command], Command]
"""Now, who asks, what."""
CONFIG_BODY_BYTES_MAX = 1 << 20


class Administration:
    """``changed`` is told of a new configuration, and of which topic's route shows something else (None: all)."""

    def __init__(
        self, config: NamesrvConfig, kv: KVConfig, tables: Tables, outbox: list[Effect],
        changed: Callable[[NamesrvConfig, str | None], None],
    ) -> None:
        self.config, self.kv, self.tables, self.outbox, self._changed = config, kv, tables, outbox, changed

    def handlers(self) -> dict[int, Handler]:
        """Return the function that serves each request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_namespace,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    # --- topics ----------------------------------------------------------------------------------------------

    def _all_topics(self, now: int, connection: Hashable, command: Command) -> Command:
        if not self.config.enable_all_topic_list:
            return _disabled(command, "enableAllTopicList")
        return response(command, body=TopicList(topics.all_topics(self.tables)).to_json())

    def _topics_of_cluster(self, now: int, connection: Hashable, command: Command) -> Command:
        if not self.config.enable_topic_list:
            return _disabled(command, "enableTopicList")
        header = GetTopicsByClusterRequest.from_ext(command.ext)
        found = topics.topics_of_cluster(self.tables, header.cluster)
        return response(command, body=TopicList(found).to_json())

    def _system_topics(self, now: int, connection: Hashable, command: Command) -> Command:
        found, address = topics.system_topics(self.tables)
        return response(command, body=TopicList(found, broker_addr=address).to_json())

    def _unit_topics(self, now: int, connection: Hashable, command: Command) -> Command:
        if not self.config.enable_topic_list:
            return _disabled(command, "enableTopicList")
        of = {
            RequestCode.GET_UNIT_TOPIC_LIST: topics.unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: topics.unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: topics.unit_sub_ununit_topics,
        }[RequestCode(command.code)]
        return response(command, body=TopicList(of(self.tables)).to_json())

    def _wipe_write_permission(self, now: int, connection: Hashable, command: Command) -> Command:
        header = BrokerNameRequest.from_ext(command.ext)
        count = topics.wipe_write_permission(self.tables, header.broker_name)
        return response(command, header=WipeWritePermResponse(wipe_topic_count=count))

    def _add_write_permission(self, now: int, connection: Hashable, command: Command) -> Command:
        header = BrokerNameRequest.from_ext(command.ext)
        count = topics.add_write_permission(self.tables, header.broker_name)
        return response(command, header=AddWritePermResponse(add_topic_count=count))

    def _register_topic(self, now: int, connection: Hashable, command: Command) -> Command:
        header = RegisterTopicRequest.from_ext(command.ext)
        route = TopicRouteData.from_json(command.body) if command.body else TopicRouteData()
        if self.tables.full(rows=len(route.queue_datas)):
            return response(command, ResponseCode.SYSTEM_BUSY, remark="this name server holds as much as it may")
        topics.register_topic(self.tables, header.topic, route.queue_datas)
        return response(command)

    def _delete_topic(self, now: int, connection: Hashable, command: Command) -> Command:
        header = DeleteTopicRequest.from_ext(command.ext)
        topics.delete_topic(self.tables, header.topic, header.cluster_name)
        return response(command)

    # --- key-value table -------------------------------------------------------------------------------------

    def _put_kv(self, now: int, connection: Hashable, command: Command) -> Command:
        header = PutKVConfigRequest.from_ext(command.ext)
        try:
            self.kv.put(header.namespace, header.key, header.value)
        except KVTableFull as full:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=str(full))
        self._kv_changed(header.namespace, header.key)
        return response(command)

    def _get_kv(self, now: int, connection: Hashable, command: Command) -> Command:
        header = KVKeyRequest.from_ext(command.ext)
        value = self.kv.get(header.namespace, header.key)
        if value is None:
            return response(
                command, ResponseCode.QUERY_NOT_FOUND,
                remark=f"no key {header.key[:255]!r} in namespace {header.namespace[:255]!r}")
        return response(command, header=KVValueResponse(value=value))

    def _delete_kv(self, now: int, connection: Hashable, command: Command) -> Command:
        header = KVKeyRequest.from_ext(command.ext)
        self.kv.delete(header.namespace, header.key)
        self._kv_changed(header.namespace, header.key)
        return response(command)

    def _kv_namespace(self, now: int, connection: Hashable, command: Command) -> Command:
        header = KVNamespaceRequest.from_ext(command.ext)
        entries = self.kv.namespace(header.namespace)
        if entries is None:
            return response(
                command, ResponseCode.QUERY_NOT_FOUND, remark=f"no namespace {header.namespace[:255]!r}")
        return response(command, body=KVTable(dict(entries)).to_json())

    def _kv_changed(self, namespace: str, key: str) -> None:
        if namespace == ORDER_TOPIC_CONFIG:
            self._changed(self.config, key)
        self.outbox.append(Save(self.config.kv_config_path, self.kv.encode()))

    # --- configuration ---------------------------------------------------------------------------------------

    def _get_config(self, now: int, connection: Hashable, command: Command) -> Command:
        return response(command, body=properties.encode(listing(self.config)).encode())

    def _update_config(self, now: int, connection: Hashable, command: Command) -> Command:
        if len(command.body) > CONFIG_BODY_BYTES_MAX:
            return response(
                command, ResponseCode.INVALID_PARAMETER, remark=f"more than {CONFIG_BODY_BYTES_MAX} bytes of keys")
        try:
            given = properties.parse(command.body.decode())
            if refused := sorted(given.keys() & self.config.black_list):
                return response(
                    command, ResponseCode.NO_PERMISSION,
                    remark=f"not to be changed while running: {', '.join(refused)}; see configBlackList")
            config = from_properties(given, start=self.config)
        except (ConfigError, UnicodeDecodeError, ValueError) as error:
            return response(command, ResponseCode.INVALID_PARAMETER, remark=str(error))
        edit = Edit(given, to_properties(self.config), to_properties(config))
        self.config = config
        self._changed(config, None)
        self.outbox.append(Save(config.config_store_path, edit))
        waiting = sorted(given.keys() & names(NamesrvConfig).keys() - live_keys())
        return response(command, remark=f"from the next start on: {', '.join(waiting)}" if waiting else None)


def _disabled(command: Command, name: str) -> Command:
    return response(command, ResponseCode.SYSTEM_ERROR, remark=f"switched off by {name} = false")
