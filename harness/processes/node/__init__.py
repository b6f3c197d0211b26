"""Clients of RocketMQ for Node.js: packages from npm in a cache folder, and our small program that stands for a user.

``await fetch()`` gives a ``Packages``; ``exercise`` runs the program. It knows npm and node, and no server.
"""

from harness.processes.node.packages import NodeMissing, Packages, fetch
from harness.processes.node.programs import exercise

__all__ = ["NodeMissing", "Packages", "exercise", "fetch"]
