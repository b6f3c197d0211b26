"""Puts the programs that run beside Java into the wheel, for whoever asks; see pyproject.toml.

They are Java, JavaScript and Go, need Maven, npm or Go, and serve interoperation runs alone. Knows folders, no package.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ("harness/processes/java/src", "harness/processes/go/src", "harness/processes/node/exercise.js",
            "harness/processes/node/package.json")


class Programs(BuildHookInterface):  # type: ignore[type-arg]  # hatchling leaves its parameter open
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data["force_include"].update({path: path for path in PROGRAMS})
