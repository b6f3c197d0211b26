"""The codes about groups, over the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs

from broker.groups import GroupsConfig, GroupTable
from broker.groups.admin import GroupAdmin, SubscriptionGroupList
from broker.store.tables import SubscriptionGroup, SubscriptionGroups
from harness.simulation.worlds.streams import Wire, wire_to
from remoting.bodies.consumers import GroupForbidden
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.server import Server


@attrs.define
class Bench:
    groups: GroupTable
    wire: Wire
    failure: OSError | None = None
    positions_stay: OSError | None = None
    saves: int = 0
    cleaned: list[str] = attrs.field(factory=list)

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> Command:
        answer = await self.wire.ask(Command(code, opaque=1, ext=ext, body=body))
        assert answer is not None
        return answer

    async def saved(self) -> None:
        self.saves += 1
        if self.failure is not None:
            raise self.failure

    async def positions_gone(self) -> None:
        if self.positions_stay is not None:
            raise self.positions_stay


@asynccontextmanager
async def bench(config: GroupsConfig | None = None) -> AsyncGenerator[Bench, None]:
    groups = GroupTable(config or GroupsConfig(), lambda: 5)
    made: list[Bench] = []

    async def saved() -> None:
        await made[0].saved()

    admin = GroupAdmin(groups, saved)
    async with wire_to(Server(admin.handlers())) as wire:
        made.append(Bench(groups, wire))
        admin.on_clean, admin.cleaned = made[0].cleaned.append, made[0].positions_gone
        yield made[0]


async def test_a_group_is_made_changed_read_and_deleted() -> None:
    async with bench() as at:
        group = SubscriptionGroup("g", consume_enable=False, retry_queue_nums=2)
        made = await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.to_json())
        assert (made.code, at.saves) == (ResponseCode.SUCCESS, 1)
        read = await at.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
        assert SubscriptionGroup.from_json(read.body) == group
        await at.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset="true")
        assert (at.groups.get("g"), at.cleaned, at.saves) == (None, ["g"], 2)
        await at.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g")
        assert at.cleaned == ["g"]


async def test_a_deletion_says_what_stays_on_disk() -> None:
    async with bench() as at:
        at.positions_stay = OSError(28, "No space left on device")
        kept = await at.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset="true")
        assert (kept.code, kept.remark) == (
            ResponseCode.SYSTEM_ERROR, "deleted, and the positions in memory only: consumerOffset.json cannot be "
            "written, [Errno 28] No space left on device")
        assert (await at.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g")).code == ResponseCode.SUCCESS


async def test_a_list_with_a_bad_name_makes_none() -> None:
    async with bench() as at:
        two = SubscriptionGroupList([SubscriptionGroup("g"), SubscriptionGroup("b d")])
        refused = await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, two.to_json())
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert at.groups.get("g") is None
        both = SubscriptionGroupList([SubscriptionGroup("g"), SubscriptionGroup("h")])
        assert (await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, both.to_json())).code == 0
        assert at.groups.version.counter == 1


async def test_attributes_that_nobody_knows_are_refused_and_present_ones_stay() -> None:
    async with bench() as at:
        at.groups.update([SubscriptionGroup("g", attributes={"old": "1"})])
        bad = SubscriptionGroup("g", attributes={"+priority.factor": "3"})
        answer = await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, bad.to_json())
        assert (answer.code, "priority.factor" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, SubscriptionGroup("g", broker_id=1).to_json())
        assert at.groups.get("g") == SubscriptionGroup("g", broker_id=1, attributes={"old": "1"})


async def test_an_unknown_group_that_may_not_be_made_is_not_there() -> None:
    async with bench(GroupsConfig(auto_create_subscription_group=False)) as at:
        answer = await at.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_disk_that_does_not_write_is_said() -> None:
    async with bench() as at:
        at.failure = OSError("no room")
        answer = await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, SubscriptionGroup("g").to_json())
        assert (answer.code, "no room" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_forbidden_is_set_cleared_and_asked_for() -> None:
    async with bench() as at:
        for readable, expected in (("false", False), (None, False), ("true", True), (None, True)):
            ext = {} if readable is None else {"readable": readable}
            answer = await at.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, b"", group="g", topic="t", **ext)
            assert GroupForbidden.from_json(answer.body) == GroupForbidden("g", "t", expected)


async def test_all_groups_at_once_and_in_pages() -> None:
    async with bench(GroupsConfig(split_metadata_size=4)) as at:
        at.groups.forbid("g5", "t", True)
        at.groups.update([SubscriptionGroup(f"g{number}") for number in range(6)])
        every = sorted(at.groups.groups)
        whole = await at.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert SubscriptionGroups.from_json(whole.body) == at.groups.snapshot()
        version, read = "", list[str]()
        while len(read) < len(every):
            answer = await at.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groupSeq=str(len(read)),
                                  maxGroupNum="100", dataVersion=version)
            table = SubscriptionGroups.from_json(answer.body)
            assert answer.ext["totalGroupNum"] == str(len(every))
            assert 0 < len(table.subscription_group_table) <= 5
            assert set(table.forbidden_table) == {"g5"} & table.subscription_group_table.keys()
            version = table.data_version.to_json().decode()
            read += sorted(table.subscription_group_table)
        assert read == every
        at.groups.forbid("x", "t", True)
        again = await at.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groupSeq="4", dataVersion=version)
        assert sorted(SubscriptionGroups.from_json(again.body).subscription_group_table) == every[:4], "changed: anew"
