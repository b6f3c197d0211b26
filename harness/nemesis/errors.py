"""Errors for faults that cannot be made here, in words.

It knows nothing of who asked.
"""

from __future__ import annotations


class NotHere(Exception):
    """This machine, or this program, does not allow that; the words say why."""
