"""What a fuzz target is. The targets themselves: ``fuzz.targets`` for raft's decoders, ``fuzz.remoting_targets``,
``fuzz.controller_targets``, ``fuzz.store_targets``, ``fuzz.broker_targets``, ``fuzz.analysis_targets``.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs


@attrs.frozen
class Target:
    """``check`` raises on a broken promise; ``seeds`` are inputs to start from; ``about`` names what is under test."""

    about: str
    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    max_bytes: int = 1_024
