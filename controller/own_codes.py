"""Request codes that are ours alone, far from all of Java's; a Java controller answers them with code 3.

Being above 32767 they travel in JSON headers only.
"""

from __future__ import annotations

from enum import IntEnum

from remoting.header import Header, header


class OwnCode(IntEnum):
    """Asked of the active controller by ``mqadmin``."""

    IMPORT_METADATA = 61_001
    """Body: groups of another controller (``controller.metadata.imports``), all or none."""
    CHANGE_CONTROLLER_GROUP = 61_002
    """Header ``ChangeControllerGroupRequest``: members of the controller group come and go."""
    EXPLAIN = 61_003
    """Body of the answer: what this controller has to say of its state, one sentence per line. Any controller."""


@header
class ChangeControllerGroupRequest(Header):
    """``add`` is ``n3-host:port;n4-host:port``, ``remove`` is ``n0;n1``. Neither: take wiped members in again."""

    add: str = ""
    remove: str = ""
