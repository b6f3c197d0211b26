"""What the deciding cores assert: a bug is planted in each that an assertion notices, and nothing else.

A row is a change of one module's text, and a call. Before the change the call answers. After it, it raises where
assertions are compiled in, and answers where they are not: so nothing but the assertion noticed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

import controller.metadata
from benchmarks.structure import Tree, is_assertion
from controller.metadata.codec import encode
from controller.metadata.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    DropEligible,
    ElectMaster,
    ImportedGroup,
    ImportGroups,
    LiveReplica,
    RegisterBroker,
    Trigger,
)
from controller.metadata.groups import BrokerGroup, GroupKey, Replica
from tests.controller.metadata.fleet import KEY, Bytes, seen

FOLDER = Path(str(controller.metadata.__file__)).parent
CORES = ("policy", "resolve", "eligible", "alter", "clean", "elect", "identity", "imports", "codec", "snapshot",
         "machine")
"""Each after those that it imports. The others hold values, and assert nothing."""
Cores = Mapping[str, Any]

A, B, C = (Replica(f"{name}:1", f"{name}:1;7") for name in "abc")
LED = BrokerGroup(replicas={1: A, 2: B, 3: C}, next_broker_id=4, sync_state_set=frozenset({1, 2}),
                  sync_state_set_epoch=2, master=1, master_epoch=1)
ALONE = attrs.evolve(LED, sync_state_set=frozenset({1}), eligible=frozenset({2}))
LEARNER = attrs.evolve(LED, sync_state_set=frozenset({1}), replicas={**LED.replicas, 1: attrs.evolve(A, learner=True)})
ALTER = AlterSyncStateSet(term=1, key=KEY, broker_id=1, master_epoch=1, sync_state_set=frozenset({1, 3}),
                          sync_state_set_epoch=2, observation=seen(1, 3))
SHRINK = attrs.evolve(ALTER, sync_state_set=frozenset({1}), least=2)
ELECT = ElectMaster(term=1, key=KEY, trigger=Trigger.CONTROLLER, broker_id=None, observation=seen(2, 3))
CLEAN = CleanBrokerData(term=1, key=KEY, broker_ids=frozenset({2}), observation=seen(1))
FIRST = ApplyBrokerId(term=1, key=KEY, broker_id=1, check_code="a:1;7")
MOVE = RegisterBroker(term=1, key=KEY, broker_id=2, address="d:1", observation=seen(1))
COMES = ImportGroups(term=1, groups=(ImportedGroup(KEY, {1: A}, 2, frozenset({1}), 1, 1, 1),))


def machine(cores: Cores, group: BrokerGroup | None, *commands: Command) -> Any:
    """One that has this group, after these commands."""
    made = cores["machine"].MetadataMachine()
    if group is not None:
        made._state.put(KEY, group)
    for command in commands:
        made.apply_at(encode(command, 1), 1)
    return made


PLANTED = [
    pytest.param("alter", "if group.master not in command.sync_state_set", "if False",
                 lambda cores: cores["alter"].alter(LED, attrs.evolve(ALTER, sync_state_set=frozenset({3})), 2),
                 id="a set without its master"),
    pytest.param("alter", "group.leader is None or command.broker_id != group.leader", "group.leader is None",
                 lambda cores: cores["alter"].alter(LED, attrs.evolve(ALTER, broker_id=2), 2),
                 id="anybody reports a set"),
    pytest.param("alter", "command.sync_state_set != group.sync_state_set:\n        refused", "group:\n        refused",
                 lambda cores: cores["alter"].alter(LED, attrs.evolve(
                     ALTER, sync_state_set=LED.sync_state_set, observation=seen(1, 2)), 2),
                 id="the accepted set ends who is eligible"),
    pytest.param("eligible", "before.electable - command.sync_state_set", "before.electable",
                 lambda cores: cores["alter"].alter(LED, SHRINK, 2), id="in sync and eligible"),
    pytest.param("clean", "        sync_state_set=shrunk,\n", "",
                 lambda cores: cores["clean"].clean(LED, CLEAN), id="a cleaned broker stays electable"),
    pytest.param("clean", "if group.sync_state_set and asked", "if False and asked",
                 lambda cores: cores["clean"].clean(LED, attrs.evolve(
                     CLEAN, broker_ids=LED.sync_state_set, clean_living=True)), id="the last in sync go"),
    pytest.param("elect", "if command.unclean else [group.electable]", "if group else []",
                 lambda cores: cores["elect"].elect(LED, attrs.evolve(ELECT, observation=seen(3))),
                 id="an unclean election that nobody allowed"),
    pytest.param("elect", "if leader is not None and target", "if leader is None and target",
                 lambda cores: cores["elect"].elect(LEARNER, attrs.evolve(ELECT, observation=seen(1))),
                 id="a living master is lost"),
    pytest.param("elect", "not (observation.live[broker_id].learner or group.replicas[broker_id].learner)", "True",
                 lambda cores: cores["elect"].elect(attrs.evolve(LEARNER, master=None), attrs.evolve(
                     ELECT, observation=seen(1))), id="a learner is elected"),
    pytest.param("identity", "command.broker_id, group.next_broker_id", "command.broker_id, len(group.replicas)",
                 lambda cores: cores["identity"].apply_broker_id(LED, attrs.evolve(FIRST, broker_id=9)),
                 id="the next id is counted"),
    pytest.param("identity", "if lives and displaces(known, command)", "if False",
                 lambda cores: cores["identity"].register(LED, MOVE, 2), id="the living are replaced"),
    pytest.param("imports", "if min(item.replicas) < here.next_broker_id", "if False",
                 lambda cores: cores["imports"].import_groups(lambda key: BrokerGroup(next_broker_id=3), COMES),
                 id="ids of a removed group come back"),
    pytest.param("policy", "if replica.max_offset >= confirmed", "if replica.max_offset < confirmed",
                 lambda cores: cores["policy"].POLICIES["preferred"].choose(
                     {1: LiveReplica(max_offset=5, confirm_offset=5), 2: LiveReplica(max_offset=3)}, None),
                 id="the longest log is left out"),
    pytest.param("resolve", "identity is not None and identity.name == name", "identity is not None",
                 lambda cores: cores["resolve"].resolve(KEY.name, None, GroupKey(KEY.cluster, "another"), ()),
                 id="a connection's group is meant, whatever the name"),
    pytest.param("machine", "return self._state.named.get(name, ())", "return tuple(self._state.groups)",
                 lambda cores: machine(cores, LED).resolve("another"), id="a name means any group"),
    pytest.param("machine", "self.named[key.name] = tuple(keys)", "pass",
                 lambda cores: machine(cores, None, FIRST), id="a new group has no name"),
    pytest.param("machine", "fresh = sum(key not in self._state.groups for key in added)",
                 "fresh, added = 0, {each.key: self._group(each.key) for each in command.groups}",
                 lambda cores: machine(cores, LED, COMES), id="an import replaces a group"),
    pytest.param("eligible", "EligibleDropped(key=command.key, changed=True)", "EligibleDropped(key=command.key)",
                 lambda cores: machine(cores, ALONE, DropEligible(term=1, key=KEY, broker_id=1, master_epoch=1)),
                 id="a change that is not told"),
    pytest.param("clean", "master_epoch=group.master_epoch + lost_master", "master_epoch=group.master_epoch",
                 lambda cores: machine(cores, attrs.evolve(LED, sync_state_set=frozenset({1, 2})), attrs.evolve(
                     CLEAN, broker_ids=frozenset({1}), clean_living=True)), id="two masters in one epoch"),
    pytest.param("snapshot", "_pack(key, groups[key], format_in_use)", "_pack(key, groups[key], LAYOUT)",
                 lambda cores: cores["snapshot"].write({KEY: attrs.evolve(LED, vacant=True)}, 2, Bytes()),
                 id="a snapshot forgets what its format has"),
    pytest.param("codec", "    (7, DropEligible, _pack_drop, _drop),\n", "", lambda cores: None,
                 id="a command without bytes"),
]


@pytest.mark.parametrize(("core", "old", "new", "call"), PLANTED)
def test_only_an_assertion_notices(core: str, old: str, new: str, call: Callable[[Cores], object]) -> None:
    text = (FOLDER / f"{core}.py").read_text(encoding="utf-8")
    assert text.count(old) == 1, "the row is about text that is not there"
    call(loaded({}, with_asserts=True))
    call(loaded({core: text.replace(old, new)}, with_asserts=False))
    with pytest.raises(AssertionError):
        call(loaded({core: text.replace(old, new)}, with_asserts=True))


def loaded(changed: Mapping[str, str], *, with_asserts: bool) -> Cores:
    """The cores anew, apart from those that the other tests know."""
    cores: dict[str, ModuleType] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in CORES:
            file = FOLDER / f"{name}.py"
            module = cores[name] = ModuleType(f"controller.metadata.{name}")
            patch.setitem(sys.modules, module.__name__, module)
            patch.setattr(controller.metadata, name, module)
            text = changed.get(name) or file.read_text(encoding="utf-8")
            exec(compile(text, str(file), "exec", optimize=0 if with_asserts else 1), module.__dict__)
    return cores


def test_each_core_that_asserts_has_a_planted_defect() -> None:
    cores = [each for each in Tree(FOLDER.parents[1]).of("controller.metadata") if "core" in each.kinds]
    asserting = {each.name.rpartition(".")[2] for each in cores if any(map(is_assertion, each.nodes))}
    asserting.remove("invariants")  # properties: ``test_invariants`` breaks each of them
    assert {str(row.values[0]) for row in PLANTED} == asserting
