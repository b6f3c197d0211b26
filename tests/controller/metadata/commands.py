"""Hypothesis strategies for commands: any that can be written, and such as meet each other. Decides nothing."""

from __future__ import annotations

from hypothesis import strategies as st

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
    Observation,
    RaiseFormat,
    RegisterBroker,
    Trigger,
)
from controller.metadata.groups import GroupKey, Replica
from controller.metadata.policy import POLICIES

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
KEYS = st.builds(GroupKey, TEXT, TEXT)
LIVES = st.none() | st.integers(1, 2**63 - 1)
REPLICAS = st.builds(Replica, TEXT, st.none() | TEXT, st.booleans(), LIVES)
OBSERVATIONS = st.builds(Observation, st.dictionaries(INT64, st.builds(
    LiveReplica, INT64, INT64, INT64, INT64, st.booleans(), st.none() | INT64, LIVES, st.none() | TEXT), max_size=4))
_TERM = {"term": st.integers(0, 2**63 - 1)}
_KEY = {**_TERM, "key": KEYS}
_SETS = st.frozensets(INT64, max_size=5)

ANY: st.SearchStrategy[Command] = st.one_of(
    st.builds(AlterSyncStateSet, **_KEY, broker_id=INT64, master_epoch=INT64, sync_state_set=_SETS,
              sync_state_set_epoch=INT64, observation=OBSERVATIONS, least=st.none() | INT64),
    st.builds(ElectMaster, **_KEY, trigger=st.sampled_from(Trigger), broker_id=st.none() | INT64,
              designate=st.booleans(), unclean=st.booleans(), policy=st.sampled_from([*POLICIES, "x"]),
              preferred=st.none() | INT64, observation=OBSERVATIONS),
    st.builds(ApplyBrokerId, **_KEY, broker_id=INT64, check_code=TEXT),
    st.builds(RegisterBroker, **_KEY, broker_id=INT64, address=TEXT, learner=st.booleans(), life=LIVES,
              running=st.booleans(), instead_of=st.none() | st.tuples(TEXT, LIVES), observation=OBSERVATIONS),
    st.builds(CleanBrokerData, **_KEY, broker_ids=st.none() | _SETS, clean_living=st.booleans(),
              observation=OBSERVATIONS),
    st.builds(DropEligible, **_KEY, broker_id=INT64, master_epoch=INT64),
    st.builds(ImportGroups, **_TERM, groups=st.lists(st.builds(
        ImportedGroup, KEYS, st.dictionaries(INT64, REPLICAS, max_size=3), INT64, _SETS, INT64, st.none() | INT64,
        INT64), max_size=3).map(tuple)),
    st.builds(RaiseFormat, **_TERM, format=st.integers(1, 9)),
)
"""Every command there is, with every value that its fields may have on the log."""
