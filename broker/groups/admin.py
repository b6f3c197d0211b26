"""Answers administrators and slaves about consumer groups: codes 200, 225, 207, 352, 201 and 353.

A group that was made or deleted is on disk when the answer goes. Codes and words are Java's.
Source: ``AdminBrokerProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from broker.groups.table import GroupTable
from broker.store.tables import SubscriptionGroup, SubscriptionGroups
from broker.topics.admin import Saved, Told, is_version, nobody, page, when_deleted, when_saved
from broker.topics.names import group_fault
from remoting.bodies.consumers import GroupForbidden
from remoting.body import Body, body
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.consumers import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
    GroupRequest,
    UpdateGroupForbiddenRequest,
)


@body
class SubscriptionGroupList(Body):
    """Body of code 225: groups to make or change."""

    group_config_list: list[SubscriptionGroup] = attrs.field(factory=list)


class GroupAdmin:
    def __init__(self, groups: GroupTable, saved: Saved) -> None:
        self._groups, self._saved = groups, saved
        self.on_clean: Callable[[str], None] = lambda group: None
        """Called with a deleted group's name when its offsets are to go with it."""
        self.cleaned: Saved = trio.lowlevel.checkpoint
        """Of those offsets, which are gone."""
        self.told: Told = nobody
        """Of their deletion."""

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.create_many,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    # --- changing --------------------------------------------------------------------------------------------

    async def create(self, _: Connection, request: Command) -> Command:
        return await self._create(request, [SubscriptionGroup.from_json(request.body)])

    async def create_many(self, _: Connection, request: Command) -> Command:
        return await self._create(request, SubscriptionGroupList.from_json(request.body).group_config_list)

    async def _create(self, request: Command, asked: list[SubscriptionGroup]) -> Command:
        final = []
        for group in asked:
            if (fault := group_fault(group.group_name)) is not None:
                return response(request, ResponseCode.INVALID_PARAMETER, remark=fault)
            present = self._groups.get(group.group_name)
            kept = present.attributes if present is not None else {}
            if unknown := [key for key, value in group.attributes.items() if kept.get(key) != value]:
                return response(request, ResponseCode.SYSTEM_ERROR, remark=(
                    f"unsupported key: {unknown[0].lstrip('+-')}; this broker knows no attributes of groups"))
            final.append(attrs.evolve(group, attributes=kept))
        if final:
            self._groups.update(final)
        return await self._when_saved(request)

    async def delete(self, _: Connection, request: Command) -> Command:
        asked = DeleteSubscriptionGroupRequest.from_ext(request.ext)
        self._groups.delete(asked.group_name)
        if asked.clean_offset:
            self.on_clean(asked.group_name)
            return await when_deleted(request, self.told, self.cleaned, self._when_saved)
        return await self._when_saved(request)

    async def forbid(self, _: Connection, request: Command) -> Command:
        """Forbid or allow a group to read a topic, or only tell whether it may."""
        asked = UpdateGroupForbiddenRequest.from_ext(request.ext)
        if asked.readable is not None:
            self._groups.forbid(asked.group, asked.topic, not asked.readable)
        readable = not self._groups.is_forbidden(asked.group, asked.topic)
        return await self._when_saved(request, GroupForbidden(asked.group, asked.topic, readable))

    async def _when_saved(self, request: Command, answer: Body | None = None) -> Command:
        return await when_saved(request, self._saved, "subscriptionGroup.json",
                                b"" if answer is None else answer.to_json())

    # --- reading ---------------------------------------------------------------------------------------------

    def get(self, _: Connection, request: Command) -> Command:
        """Answer with a group, as Java does: where unknown groups are made on their own, so is this one."""
        found = self._groups.find(GroupRequest.from_ext(request.ext).group)
        if found is None:
            return response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="No group in this broker")
        return response(request, body=found.to_json())

    def get_all(self, _: Connection, request: Command) -> Command:
        """All, or the page that is asked for."""
        asked = GetAllSubscriptionGroupRequest.from_ext(request.ext)
        config, groups = self._groups.config, self._groups.groups
        table = self._groups.snapshot()
        if config.enable_split_metadata and asked != GetAllSubscriptionGroupRequest():
            seq = max(0, asked.group_seq or 0) if is_version(asked.data_version, table.data_version) else 0
            most = config.split_metadata_size if asked.max_group_num is None else asked.max_group_num
            names = page(sorted(groups), seq, max(1, min(config.split_metadata_size, most)))
            table = SubscriptionGroups(
                {name: groups[name] for name in names},
                {name: table.forbidden_table[name] for name in names if name in table.forbidden_table},
                table.data_version)
        return response(request, header=GetAllSubscriptionGroupResponse(len(groups)), body=table.to_json())
