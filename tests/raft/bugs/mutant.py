"""What a mutant is: one guard of the library taken out, and the tests that must notice.

It knows nothing of how mutants are run (``run_mutants``) or which rows there must be (``registry``).
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Mutant:
    """A smallest textual change that removes the guard a row of the bug list is about."""

    row: str
    """The row it belongs to: ``E1``, ``D11``, ``DL_R3``. A row may have several."""
    file: str
    """Path from the root of the tree."""
    old: str
    """Text that occurs exactly once in ``file``."""
    new: str
    tests: tuple[str, ...]
    """pytest ids, each of which is green on the clean tree and at least one red on the mutant."""

    def apply(self, text: str) -> str:
        """The mutated text of ``file``. ValueError when ``old`` does not occur exactly once, or the text is no program
        any more, which every test would notice.
        """
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise ValueError(f"{self.row}: the text to change occurs {found} times in {self.file}: {self.old!r}")
        changed = text.replace(self.old, self.new)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise ValueError(f"{self.row}: {self.file} does not compile with {self.new!r}: {error}") from error
        return changed


@attrs.frozen
class Impossible:
    """A row whose bug no small change can bring back: nothing in the code stands for the missing guard."""

    row: str
    why: str
    """In words: what in the construction rules the bug out."""
    assertion: str
    """Where that construction is held fast: a file and what it asserts there."""
