"""The page of all keys of RocketMQ's servers: what each does there, and what it does here.

Each row names a value that the tests give to that key alone, and compare what becomes of it with the row.
``reference/keys.json`` says which keys there are, by class, with Java's defaults: ``Keys.java`` found them in the
released jars. ``reference/java-keys.txt`` says what those do that have no effect here, below the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import attrs

from broker.idle_keys import FEATURES, INSTEAD, NOT_OFFERED
from broker.parts import configuration
from controller.config import ControllerConfig
from controller.namesrv.config import FEATURES as NAMESRV_FEATURES
from controller.namesrv.config import NamesrvConfig
from remoting.daemon.keys import Missing, names, written

REFERENCE: Final = Path(__file__).resolve().parent / "reference"
RECORDED: Final = REFERENCE / "keys.json"
MEANINGS: Final = REFERENCE / "java-keys.txt"
BROKER: Final = ("BrokerConfig", "MessageStoreConfig", "NettyServerConfig", "NettyClientConfig", "AuthConfig")
JAVAS: Final[Mapping[str, str]] = {
    "BrokerConfig": "org.apache.rocketmq.common.BrokerConfig",
    "MessageStoreConfig": "org.apache.rocketmq.store.config.MessageStoreConfig",
    "NettyServerConfig": "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "NettyClientConfig": "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    "AuthConfig": "org.apache.rocketmq.auth.config.AuthConfig",
    "NamesrvConfig": "org.apache.rocketmq.common.namesrv.NamesrvConfig",
    "ControllerConfig": "org.apache.rocketmq.common.ControllerConfig",
    "JraftConfig": "org.apache.rocketmq.common.JraftConfig",
}
"""The classes whose setters are keys."""
TEXTS: Final[Mapping[str, str]] = {
    "bindAddress": "127.0.0.1", "deleteWhen": "05", "messageDelayLevel": "1s 5s"}
"""Tried with keys whose text must be of a kind."""
OTHER_NAMES: Final[Mapping[str, str]] = {"processReadEvent": "isProcessReadEvent"}
"""By the names of Java's setters, which files give, those of its getters, which are listed."""
NEVER_IN_FILES: Final = frozenset({"clusterName", "inBrokerContainer", "scanAvailableNameSrv", "jraftConfig"})
"""Setters whose key is another one, or none that a file gives."""


@cache
def recorded() -> Mapping[str, Mapping[str, str]]:
    """Class to key to Java's default."""
    found: dict[str, dict[str, str]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


@cache
def meanings() -> Mapping[str, tuple[str, str]]:
    """Key to what it does in Java, and why it does nothing here."""
    found, reason = {}, ""
    for line in MEANINGS.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        else:
            name, _, does = line.partition(": ")
            found[name] = does, reason
    return found


@cache  # a configuration is made anew from its parts each time that it is asked for
def server_of(kind: str) -> tuple[type[attrs.AttrsInstance], Mapping[str, str], Mapping[str, Missing]]:
    """Whose keys these are: our configuration, keys that must have a value, keys that ask for what is not here."""
    if kind in BROKER:
        return configuration(), NOT_OFFERED, FEATURES
    if kind == "NamesrvConfig":
        return NamesrvConfig, {}, NAMESRV_FEATURES
    return ControllerConfig, {}, {}


def field_of(kind: str, name: str) -> attrs.Attribute[Any] | None:
    """Ours of that key; None: it has no effect here."""
    return names(server_of(kind)[0]).get(OTHER_NAMES.get(name, name))


def effect(kind: str, name: str) -> tuple[str, str]:
    """Here, and in Java. Raises ``KeyError``: it has no effect here, and nobody has said what it does in Java."""
    _, refused, missing = server_of(kind)
    field = field_of(kind, name)
    if field is not None:
        about, default = field.metadata["about"], written(field.default)
        shown = f"`{default}`" if default else "worked out"
        other = "" if default == recorded()[kind][name] else f"; default {shown}"
        return f"effective: {about}{other}", meanings()[name][0] if name in meanings() else "the same"
    does, reason = meanings()[name]
    if name in refused:
        instead = f"; {INSTEAD[name]}" if name in INSTEAD else ""
        return f"refused, unless {f'`{refused[name]}`' if refused[name] else 'empty'}{instead}. {reason}", does
    if name in missing:
        without = f"`{missing[name].without}`" if missing[name].without else "empty"
        return f"none; unless {without} a warning names what is missing: {missing[name].feature}", does
    return f"none. {reason}", does


def tried(kind: str, name: str) -> str:
    """A value that asks for something: another one than the default, unless that is what turns a feature off."""
    _, _, missing = server_of(kind)
    field = field_of(kind, name)
    default = written(field.default) if field is not None else recorded()[kind][name]
    meta: Mapping[str, Any] = field.metadata if field is not None else {"most": None, "choices": ()}
    if default in ("true", "false"):
        other = "false" if default == "true" else "true"
        return default if name in missing and missing[name].without == other else other
    if meta["choices"]:
        return str(next(choice for choice in meta["choices"] if choice != default))
    if default.lstrip("-").isdecimal() and name not in TEXTS:
        return str(int(default) + (1 if meta["most"] is None or int(default) < meta["most"] else -1))
    return TEXTS.get(name, "other")


def keys(kind: str) -> Iterator[str]:
    """A row per key of a class of Java's."""
    yield "| key | default in Java | tried with | effect here | effect in Java |"
    yield "|---|---|---|---|---|"
    for name, default in sorted(recorded()[kind].items()):
        here, java = effect(kind, name)
        cells = (f"`{name}`", f"`{default}`" if default else "", f"`{tried(kind, name)}`", here, java)
        yield f"| {' | '.join(cells)} |"


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {f"java-{kind}": partial(keys, kind) for kind in JAVAS}
