"""Chooses the checkers for a history, by its functions or by name; loads a user's own.

A user's model is ``file.py:Class`` or ``module:Class``, or an entry point of the group ``quorate.models``; a checker, a
function from events to a ``Verdict``, the same with ``quorate.checkers``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from harness.checkers import controllers, queues
from harness.checkers.models import MODELS, Model
from harness.checkers.verdict import Verdict
from harness.histories.events import APART, INVOKE, Event

MODEL_GROUP: Final = "quorate.models"
CHECKER_GROUP: Final = "quorate.checkers"
QUEUE: Final = "queue"
CONTROLLERS: Final = "controllers"
UserChecker = Callable[[list[Event]], Verdict]


class NotChosen(ValueError):
    """No checker fits, or the named one does not exist; the text says why."""


def functions(events: Iterable[Event]) -> set[str]:
    """The functions that clients asked for."""
    return {event.f for event in events if event.type == INVOKE and event.process not in APART}


def fitting(found: set[str]) -> str:
    """QUEUE, CONTROLLERS, or the name of the first model that knows all functions. Raises ``NotChosen``."""
    if not found:
        raise NotChosen("no client began anything in this history: nothing to check")
    if found <= queues.FUNCTIONS:
        return QUEUE
    if found <= controllers.FUNCTIONS:
        return CONTROLLERS
    of_store = bool(found & {"get", "put"})  # prefer kv: registers and logs know these names, too
    for name in sorted(MODELS, key=lambda name: of_store and name != "kv"):
        if found <= MODELS[name].functions.keys():
            return name
    known = "; ".join(f"{name}: {', '.join(model.functions)}" for name, model in MODELS.items())
    raise NotChosen(f"no checker knows all of {', '.join(sorted(found))}. Models know: {known}. Queues: "
                    f"{', '.join(sorted(queues.FUNCTIONS))}. Controllers: "
                    f"{', '.join(sorted(controllers.FUNCTIONS))}. Name a model of your own with --model FILE.py:CLASS")


def model(name: str) -> Callable[[], Model]:
    """The class or factory of a model. Raises ``NotChosen``."""
    if name in MODELS:
        return MODELS[name]
    made = loaded(name, MODEL_GROUP)
    if made is None:
        raise NotChosen(f"no model is called {name}: there are {', '.join(MODELS)}, and your own as FILE.py:CLASS")
    if missing := [each for each in ("begin", "step", "reads") if not hasattr(made, each)]:
        raise NotChosen(f"{name} is no model: it has no {', '.join(missing)}")
    found: Callable[[], Model] = made
    return found


def checker(name: str) -> UserChecker:
    """A user's own checker. Raises ``NotChosen``."""
    made = loaded(name, CHECKER_GROUP)
    if made is None:
        raise NotChosen(f"no checker is called {name}: there are linearizable, {QUEUE}, {CONTROLLERS}, recovery, and "
                        "your own as FILE.py:FUNCTION")
    found: UserChecker = made
    return found


def loaded(name: str, group: str) -> Any:
    """Load an entry point of a group, ``FILE.py:NAME`` or ``module:NAME``; None for an unknown bare name.

    Raises ``NotChosen`` if loading fails.
    """
    where, colon, attribute = name.rpartition(":")
    try:
        for entry in entry_points(group=group, name=name):
            return entry.load()
        if not colon:
            return None
        module = _of_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        return getattr(module, attribute)
    except Exception as error:  # it is a user's code
        raise NotChosen(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error


def beside(name: str, folder: Path) -> str:
    """The name as it is for programs in other folders: ``FILE.py:NAME`` is a path from ``folder``."""
    where, colon, attribute = name.rpartition(":")
    return f"{folder / where}:{attribute}" if colon and where.endswith(".py") else name


def _of_file(path: Path) -> Any:
    name = f"_users_{path.stem}"  # a user's module must not hide another
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ImportError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
