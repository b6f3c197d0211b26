"""The subjects of commits: each says in 15 to 72 characters what changed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RULED_FROM = "5eb3264ef41d5bab039107809600436a2318b6fe"
"""The last commit before the rule."""
LEAST, MOST = 15, 72


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def wrong(subject: str) -> bool:
    return not LEAST <= len(subject) <= MOST


def test_each_subject_says_shortly_what_changed() -> None:
    if shutil.which("git") is None or _git("rev-parse", "--git-dir").returncode:
        pytest.skip("not run: this tree is no clone")
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() != "false" or _git(
            "cat-file", "-e", RULED_FROM).returncode:
        pytest.skip("not run: this clone is shallow, and lacks the commits")
    subjects = _git("log", "--no-merges", "--format=%s", f"{RULED_FROM}..HEAD").stdout.splitlines()
    assert subjects
    assert not [subject for subject in subjects if wrong(subject)]


@pytest.mark.parametrize(("subject", "is_wrong"), [
    ("fix", True), ("A footer with a negative number is none", False), ("x" * 72, False), ("x" * 73, True),
])
def test_what_is_too_short_or_too_long(subject: str, is_wrong: bool) -> None:
    assert wrong(subject) is is_wrong
