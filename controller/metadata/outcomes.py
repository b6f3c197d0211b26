"""Outcomes of commands: one frozen value per kind of answer, with its response code.

A shell turns it into header, body, notification and counter; nothing has to be looked up again. ``changed`` says
whether applying the command changed the replicated state. This module decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from controller.metadata.groups import GroupKey
from remoting.codes import ResponseCode


@attrs.frozen(kw_only=True)
class Outcome:
    """The fields that every outcome has."""

    code: ResponseCode = ResponseCode.SUCCESS
    remark: str = ""
    """Text for people; no code depends on it. Empty on success."""
    changed: bool = False


@attrs.frozen(kw_only=True)
class Refused(Outcome):
    """A rule says no; ``code`` says which."""


@attrs.frozen(kw_only=True)
class Unreadable(Refused):
    """These bytes are no command that this format of the log knows."""

    code: ResponseCode = ResponseCode.SYSTEM_ERROR


@attrs.frozen(kw_only=True)
class Superseded(Refused):
    """Proposed by the leader of another term than the one it was applied in: what it observed is not to be believed."""

    code: ResponseCode = ResponseCode.CONTROLLER_NOT_LEADER
    proposed_term: int
    applied_term: int


@attrs.frozen(kw_only=True)
class Altered(Outcome):
    """1001 accepted. Not ``changed``: the set was already that, and its epoch stays."""

    key: GroupKey
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


@attrs.frozen(kw_only=True)
class _WithMaster(Outcome):
    key: GroupKey
    master: int
    address: str
    life: int | None = None
    """Life of the master's process, if one is on record."""
    master_epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int
    members: Mapping[int, str]
    """Address of every member by id: whom to notify."""


@attrs.frozen(kw_only=True)
class Elected(_WithMaster):
    """A new master. Epochs are the new ones."""

    changed: bool = True
    previous: int | None
    """Master right before; None if there was none."""
    clean: bool
    """It was electable: in the former SyncStateSet or eligible beside it, or this is the group's first master."""


@attrs.frozen(kw_only=True)
class MasterStillExists(_WithMaster):
    """2011: the master stays; here it is."""

    code: ResponseCode = ResponseCode.CONTROLLER_MASTER_STILL_EXIST


@attrs.frozen(kw_only=True)
class NotElected(Refused):
    """2004 or 2012: nobody can be elected. ``changed``: the group went from a lost master to none, one epoch on."""

    key: GroupKey
    master_epoch: int
    previous: int | None = None
    """The master that is recorded no longer, when ``changed``."""


@attrs.frozen(kw_only=True)
class BrokerIdApplied(Outcome):
    """1013: the id is the asker's. Not ``changed``: it was already, under the same check code."""

    key: GroupKey
    broker_id: int
    next_broker_id: int


@attrs.frozen(kw_only=True)
class BrokerIdRefused(Refused):
    """2014: take ``next_broker_id`` and try again (the reference's design promises it; Java does not send it)."""

    code: ResponseCode = ResponseCode.CONTROLLER_BROKER_ID_INVALID
    key: GroupKey
    next_broker_id: int


@attrs.frozen(kw_only=True)
class Registered(Outcome):
    """1003. The master's fields are those of a master that is alive, else None."""

    key: GroupKey
    broker_id: int
    master: int | None
    address: str | None
    """The master's."""
    life: int | None = None
    """The master's."""
    master_epoch: int | None
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int
    """It goes into the body, and into the header when there is a master."""


@attrs.frozen(kw_only=True)
class UnknownLife(Refused):
    """2014: the sender's store is older than the last one that was registered under its id; it is to doubt its log."""

    code: ResponseCode = ResponseCode.CONTROLLER_BROKER_ID_INVALID
    life: int
    """On record."""


@attrs.frozen(kw_only=True)
class Cleaned(Outcome):
    """1011. ``removed_ids`` may be empty: they were gone already."""

    key: GroupKey
    removed_ids: frozenset[int]
    group_removed: bool
    lost_master: bool
    """The master was among them; the group has none now, one epoch on."""


@attrs.frozen(kw_only=True)
class EligibleDropped(Outcome):
    """Not ``changed``: nobody was eligible, or the group has another master by now."""

    key: GroupKey


@attrs.frozen(kw_only=True)
class Imported(Outcome):
    """Groups that are here now; those that were here already, and equal, are not in ``keys``."""

    keys: tuple[GroupKey, ...]


@attrs.frozen(kw_only=True)
class FormatRaised(Outcome):
    """The format that commands and snapshots may be written in now."""

    format: int
