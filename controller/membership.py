"""The controller group's own members as text: ``n0-host:port;`` in configuration, ``n0:host:port;`` in code 1005.

Pure: what is to change is worked out here, and carried out by raft.
"""

from __future__ import annotations

import re
from typing import Final

from controller.metadata.identity import address_problem
from raft.membership import Membership
from remoting.address import split_address

NODE_ID: Final = re.compile(r"[A-Za-z0-9_.]{1,64}")


def peers_text(membership: Membership) -> str:
    """Format peers as in the answer to 1005, each item closed by a semicolon."""
    return "".join(f"{node}:{member.address};" for node, member in sorted(membership.members.items()))


def changed_members(membership: Membership, add: str, remove: str) -> tuple[dict[str, str], dict[str, str]]:
    """Voters and learners, id to address, after adding and removing. Raises ``ValueError`` in words."""
    members = {node: member.address for node, member in membership.members.items()}
    voters = {node: members[node] for node in membership.voters}
    learners = {node: address for node, address in members.items() if node not in voters}
    for node in filter(None, (item.strip() for item in remove.split(";"))):
        if node not in members:
            raise ValueError(f"{node[:64]} is no member; {', '.join(sorted(members))} are")
        voters.pop(node, None)
        learners.pop(node, None)
    for item in filter(None, (item.strip() for item in add.split(";"))):
        node, dash, address = item.partition("-")
        if not (dash and NODE_ID.fullmatch(node)):
            raise ValueError(f"{item[:200]!r} is not id-host:port, as in n3-10.0.0.4:9877")
        if wrong := address_problem(address):
            raise ValueError(wrong)
        split_address(address)
        taken = [other for other, known in {**voters, **learners}.items() if known == address and other != node]
        if taken:
            raise ValueError(f"{taken[0]} is at that address: {item}")
        learners.pop(node, None)
        voters[node] = address
    if not voters:
        raise ValueError("a controller group needs a member")
    return voters, learners
