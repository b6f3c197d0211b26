"""Effects that a name server's core asks for besides answers: notices, files, connections, and events worth telling.

Values only; ``server`` carries them out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import attrs

from remoting.daemon.edits import Edit


@attrs.frozen
class MinIdChanged:
    """Tell ``recipients`` (addresses) that their group has another smallest broker id (code 905)."""

    recipients: tuple[str, ...]
    min_broker_id: int
    min_broker_address: str
    offline_address: str | None = None
    ha_address: str | None = None


@attrs.frozen
class Save:
    """Replace a file's content; the answer waits for it. ``content``: of a configuration, what changes in it."""

    path: str
    content: bytes | Edit


@attrs.frozen
class Close:
    """End a connection: its brokers were silent for too long."""

    connection: Hashable


@attrs.frozen
class BrokerCame:
    """A broker registered under an id that it did not have before. To be told, no more."""

    cluster: str
    group: str
    broker_id: int
    address: str


@attrs.frozen
class BrokerLeft:
    """A broker is out of the routes. To be told, no more."""

    cluster: str
    group: str
    broker_id: int
    address: str
    reason: str
    orderly: bool
    replicas_left: int
    """Replicas that its group has left; without any, its topics went too."""


@attrs.frozen
class RegistrationRefused:
    """A registration was refused; to be told, no more."""

    cluster: str
    group: str
    broker_id: int
    address: str
    verdict: str


Effect: TypeAlias = MinIdChanged | Save | Close | BrokerCame | BrokerLeft | RegistrationRefused
