"""Configuration classes whose fields are RocketMQ's keys: from properties to a frozen attrs class and back.

A field made by ``key`` is called ``listen_port`` in Python and ``listenPort`` in the file, unless it names itself. An
unknown key, a value of the wrong kind and one outside its bounds raise ``ConfigError``, which names key, value and
rule; Java ignores the first two. Knows text only: no file and no particular configuration.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar, get_type_hints

import attrs

from remoting.fields import decimal

SHOWN_CHARS_MAX: Final = 400
"""Characters of a key or value that a message repeats."""


NETTY_WITHOUT_MEANING: Mapping[str, object] = {
    "serverWorkerThreads": 8, "serverCallbackExecutorThreads": 0, "serverSelectorThreads": 3,
    "serverOnewaySemaphoreValue": 256, "serverAsyncSemaphoreValue": 64, "serverSocketSndBufSize": 0,
    "serverSocketRcvBufSize": 0, "writeBufferHighWaterMark": 0, "writeBufferLowWaterMark": 0,
    "serverNettyWorkerGroupEnable": True, "serverPooledByteBufAllocatorEnable": True, "useEpollNativeSelector": False,
}
"""Keys of Java's ``NettyServerConfig`` that no server here depends on, with Java's defaults."""


NETTY_CLIENT_WITHOUT_MEANING: Mapping[str, object] = {
    "clientWorkerThreads": 4, "clientCallbackExecutorThreads": 0, "clientOnewaySemaphoreValue": 65_535,
    "clientAsyncSemaphoreValue": 65_535, "connectTimeoutMillis": 3_000, "channelNotActiveInterval": 60_000,
    "isScanAvailableNameSrv": True, "scanAvailableNameSrv": True, "clientChannelMaxIdleTimeSeconds": 120,
    "clientSocketSndBufSize": 0, "clientSocketRcvBufSize": 0, "clientPooledByteBufAllocatorEnable": False,
    "clientCloseSocketIfTimeout": True, "useTLS": False, "socksProxyConfig": "{}", "disableCallbackExecutor": False,
    "disableNettyWorkerGroup": False, "maxReconnectIntervalTimeSeconds": 60, "enableReconnectForGoAway": True,
}
"""The same of ``NettyClientConfig``."""


@attrs.frozen
class Missing:
    """A feature that a key asks for and that is not here; the value ``without`` asks for nothing."""

    feature: str
    without: str = "false"


NETTY_FEATURES: Mapping[str, Missing] = {"socksProxyConfig": Missing("connections through SOCKS proxies", "{}")}


class ConfigError(ValueError):
    """A configuration that cannot be used: ``key`` and ``value`` as written, ``rule`` as what was expected."""

    def __init__(self, key: str, value: str, rule: str) -> None:
        super().__init__(f"{_short(key)} = {_short(value)}: {rule}")
        self.key, self.value, self.rule = key, value, rule


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"


def key(
    default: Any, about: str, *, name: str = "", least: int | None = None, most: int | None = None,
    choices: Collection[str] = (), live: bool = False,
) -> Any:
    """A field that is a key. ``about`` is its line in listings; ``live``: a running server follows a change of it."""
    return attrs.field(default=default, metadata={
        "about": about, "name": name, "least": least, "most": most, "choices": tuple(choices), "live": live})


C = TypeVar("C", bound=attrs.AttrsInstance)


def names(cls: type[attrs.AttrsInstance]) -> dict[str, attrs.Attribute[Any]]:
    """The keys of a configuration class, as written in files, with their fields."""
    return {_key_of(field): field for field in attrs.fields(cls) if "about" in field.metadata}


def _key_of(field: attrs.Attribute[Any]) -> str:
    first, *rest = field.name.split("_")
    return field.metadata["name"] or first + "".join(part.capitalize() for part in rest)


def read(cls: type[C], properties: Mapping[str, str], *, start: C | None = None) -> C:
    """``start``, or the defaults, with every given key put in. Raises ``ConfigError``.

    Properties that are no keys of ``cls`` are passed over: ``refuse_unknown`` is for them.
    """
    fields, hints = names(cls), get_type_hints(cls)
    values = {
        fields[name].name: _value(name, text.strip(), hints[fields[name].name], fields[name].metadata)
        for name, text in properties.items() if name in fields
    }
    if start is None:
        return cls(**values)
    return attrs.evolve(start, **values)  # type: ignore[misc]  # mypy knows of no variable attrs type


def _value(name: str, text: str, kind: type, metadata: Mapping[str, Any]) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(name, text, "must be true or false")
        return text.lower() == "true"
    if kind is int:
        least, most = metadata["least"], metadata["most"]
        number = decimal(text)
        if number is None or (least is not None and number < least) or (most is not None and number > most):
            raise ConfigError(name, text, f"must be a whole number{_bounds(least, most)}")
        return number
    if metadata["choices"] and text not in metadata["choices"]:
        raise ConfigError(name, text, f"must be one of {', '.join(metadata['choices'])}")
    return text


def _bounds(least: int | None, most: int | None) -> str:
    if least is not None and most is not None:
        return f" from {least} to {most}"
    return f", at least {least}" if least is not None else f", at most {most}" if most is not None else ""


@attrs.frozen
class Unknown:
    """A given key that there is not, and ``near``, the one that was perhaps meant, or ""."""

    name: str
    text: str
    near: str


def unknown(properties: Mapping[str, str], known: Iterable[str]) -> list[Unknown]:
    """Return the keys of ``properties`` that are not among ``known``."""
    known = set(known)
    return [Unknown(name, text, "".join(difflib.get_close_matches(name, known, n=1)))
            for name, text in properties.items() if name not in known]


def refuse_tls_key(properties: Mapping[str, str], instead: str) -> None:
    """Raises ``ConfigError`` where Java's ``useTLS`` is on: to go on would drop security."""
    if properties.get("useTLS", "").strip().lower() == "true":
        raise ConfigError("useTLS", properties["useTLS"], f"is not offered; must be false: {instead}")


def refuse_unknown(properties: Mapping[str, str], known: Iterable[str]) -> None:
    """Raises ``ConfigError`` for the first key that is not among ``known``, and says which was perhaps meant."""
    for found in unknown(properties, known):
        raise ConfigError(found.name, found.text, f"is no known key{f'; {found.near} is' if found.near else ''}")


def properties(config: attrs.AttrsInstance) -> dict[str, str]:
    """Every key of a configuration with its value as text, sorted."""
    fields = names(type(config))
    return {name: written(getattr(config, fields[name].name)) for name in sorted(fields)}


def every_property(
    config: attrs.AttrsInstance, without_meaning: Mapping[str, object], kept: Mapping[str, str]
) -> dict[str, str]:
    """``properties`` and the keys without a meaning: as ``kept``, those that were given, else with their defaults."""
    idle = {name: written(default) for name, default in without_meaning.items()}
    return dict(sorted({**idle, **kept, **properties(config)}.items()))


def in_profile(
    given: Mapping[str, str], start: attrs.AttrsInstance, former: str, wanted: str,
    profiles: Mapping[str, Mapping[str, str]],
) -> Mapping[str, str]:
    """``given`` with the keys of the profile that is wanted, where ``start`` has them as the former one sets them.

    Any other value was chosen by somebody, and stays, as does what ``given`` says itself.
    """
    if wanted == former or wanted not in profiles:  # an unknown profile is refused when it is read
        return given
    now = properties(start)
    return {**{name: text for name, text in profiles[wanted].items() if now[name] == profiles[former][name]}, **given}


def live_names(cls: type[attrs.AttrsInstance]) -> frozenset[str]:
    """Keys whose change a running server follows."""
    return frozenset(name for name, field in names(cls).items() if field.metadata["live"])


def written(value: object) -> str:
    """As in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
