"""Outputs of the replicas manager: requests to send, files to write, roles to take.

Values only. It knows commands and identities, and nothing of how an output is carried out.
"""

from __future__ import annotations

import attrs

from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.replicas.identity import Application, Identity
from remoting.command import Command


@attrs.frozen
class SendCommand:
    """Send this to a controller; then ``answered`` with the answer, or with None when none came in time."""

    request: int
    address: str
    command: Command
    timeout_ms: int


@attrs.frozen
class WriteApplication:
    """Make the ``-temp`` file durable, then call ``written``."""

    application: Application


@attrs.frozen
class WriteIdentity:
    """Make the identity file durable, remove the ``-temp`` file, then call ``written``."""

    identity: Identity


@attrs.frozen
class RemoveApplication:
    """Remove the ``-temp`` file: another broker has that id. Then call ``written``."""


@attrs.frozen
class WriteLives:
    """Doubt the log, if ``doubt``, then make the lives that may be on record durable; then call ``written``."""

    lives: tuple[int, ...]
    doubt: bool = False


@attrs.frozen
class Leave:
    """No role from now on, not even the copying of a log: another process has this broker's id."""

    reason: str


@attrs.frozen
class Serve:
    """Writes are open from now on: registered, in a role, and the lease holds."""


@attrs.frozen
class Fence:
    """Writes are refused from now on, and what waits for acknowledgements is answered as unknown."""

    reason: str


@attrs.frozen
class Report:
    """Tells the operator what keeps this broker from its work."""

    problem: str


Output = (SendCommand | WriteApplication | WriteIdentity | RemoveApplication | WriteLives | BecomeMaster | BecomeSlave
          | Leave | Serve | Fence | Report)
"""Call ``role_taken`` or ``role_failed`` after ``BecomeMaster`` and ``BecomeSlave``."""
