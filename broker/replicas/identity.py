"""This broker's identity in its group, on disk: ``cluster#name#id``, with its check code while it is applied for.

Source: the design "Persistent unique BrokerId" and ``BrokerMetadata`` / ``TempBrokerMetadata`` of RocketMQ. Files are
values here; their writer uses a new file, fsync and rename. This module knows two texts and no disk.
"""

from __future__ import annotations

import attrs


class IdentityError(Exception):
    """An identity file that is not this broker's, or no identity file at all; says what to do."""


def _name(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not value.strip() or "#" in value or "\n" in value or "\r" in value:
        raise IdentityError(f"the {attribute.name.replace('_', ' ')} is {value!r}; it must not be empty and must not "
                            "contain '#' or a line's end, which separate the fields of the identity file")


@attrs.frozen
class Identity:
    """The id that the controller gave to this broker."""

    cluster_name: str = attrs.field(validator=_name)
    broker_name: str = attrs.field(validator=_name)
    broker_id: int

    def to_text(self) -> str:
        assert self.broker_id >= 0, "it is read again"
        return f"{self.cluster_name}#{self.broker_name}#{self.broker_id}"


@attrs.frozen
class Application:
    """An id that is applied for: the check code proves later that this broker applied for it."""

    cluster_name: str = attrs.field(validator=_name)
    broker_name: str = attrs.field(validator=_name)
    broker_id: int
    check_code: str = attrs.field(validator=_name)

    def to_text(self) -> str:
        assert self.broker_id >= 0, "it is read again"
        return f"{self.cluster_name}#{self.broker_name}#{self.broker_id}#{self.check_code}"

    @property
    def granted(self) -> Identity:
        return Identity(self.cluster_name, self.broker_name, self.broker_id)


def _fields(text: str, count: int, what: str) -> tuple[list[str], int]:
    fields = text.strip().split("#")
    if len(fields) != count or not (fields[2].isascii() and fields[2].isdigit() and len(fields[2]) < 20):
        raise IdentityError(f"the {what} holds {text[:80]!r}; {count} fields separated by '#' were expected, the third "
                            "a number: write cluster#group#id anew, `mqadmin getSyncStateSet` tells the ids, or remove "
                            "the file to join as a new replica")
    return fields, int(fields[2])


def load(cluster_name: str, broker_name: str, identity: str | None, application: str | None,
         ) -> Identity | Application | None:
    """Read both files' texts (None: the file is missing), and return where registration goes on after a start.

    A finished identity wins over an application: the crash came before that was removed. A damaged application is
    no more than an id lost, and passed over. Raises ``IdentityError`` for a damaged identity, and when either belongs
    to another cluster or broker name.
    """
    found: Identity | Application | None = None
    if identity is not None:
        fields, number = _fields(identity, 3, "identity file")
        found = Identity(fields[0], fields[1], number)
    elif application is not None:
        try:
            fields, number = _fields(application, 4, "application for an id")
            found = Application(fields[0], fields[1], number, fields[3])
        except IdentityError:
            return None
    if found is not None and (found.cluster_name, found.broker_name) != (cluster_name, broker_name):
        raise IdentityError(f"the identity file belongs to broker {found.broker_name[:80]!r} of cluster "
                            f"{found.cluster_name[:80]!r}; this is {broker_name!r} of {cluster_name!r}: give back the "
                            "old names, or remove the file to join as a new replica")
    return found
