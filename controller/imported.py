"""Groups of another controller as JSON, the body of ``OwnCode.IMPORT_METADATA``.

    [{"cluster": "c", "name": "broker-a", "replicas": {"1": "10.0.0.1:10911", "2": "10.0.0.2:10911"},
      "nextBrokerId": 3, "syncStateSet": [1, 2], "syncStateSetEpoch": 5, "master": 1, "masterEpoch": 2}]

Check codes are not among it, because no controller tells them: those brokers have their ids on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.metadata.commands import ImportedGroup
from controller.metadata.groups import GroupKey, Replica
from remoting.errors import BodyError
from remoting.fastjson import dumps, loads
from remoting.fields import shown


def write_groups(groups: Iterable[ImportedGroup]) -> bytes:
    return dumps([
        {"cluster": group.key.cluster, "name": group.key.name,
         "replicas": {str(broker_id): replica.address for broker_id, replica in group.replicas.items()},
         "nextBrokerId": group.next_broker_id, "syncStateSet": sorted(group.sync_state_set),
         "syncStateSetEpoch": group.sync_state_set_epoch, "master": group.master, "masterEpoch": group.master_epoch}
        for group in groups
    ])


def read_groups(body: bytes) -> tuple[ImportedGroup, ...]:
    """Raises ``BodyError``; what the values mean together is checked where they are applied."""
    groups = loads(body)
    if type(groups) is not list:
        raise BodyError("an import is an array of groups")
    return tuple(_read(group, at) for at, group in enumerate(groups))


def _read(group: Any, at: int) -> ImportedGroup:
    try:
        if type(group) is not dict:
            raise TypeError("not an object")
        return ImportedGroup(
            key=GroupKey(_text(group["cluster"]), _text(group["name"])),
            replicas={int(broker_id): Replica(_text(address), None)
                      for broker_id, address in sorted(group["replicas"].items())},
            next_broker_id=_number(group["nextBrokerId"]),
            sync_state_set=frozenset(map(_number, group["syncStateSet"])),
            sync_state_set_epoch=_number(group["syncStateSetEpoch"]),
            master=None if group.get("master") is None else _number(group["master"]),
            master_epoch=_number(group["masterEpoch"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BodyError(f"group {at} of the import: {type(error).__name__}: {str(error)[:200]}") from None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{shown(value)} is not text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{shown(value)} is not a whole number")
    return value
