"""TLS contexts for servers and clients, made anew when their files have changed.

Knows ``ssl`` and the files' times; nothing of connections or trio. Servers and clients take any function that returns
an ``ssl.SSLContext``; those made here are such functions.
"""

from __future__ import annotations

import enum
import logging
import os
import ssl
from collections.abc import Callable, Sequence

logger = logging.getLogger("remoting")


class ClientAuth(enum.Enum):
    """A server's demand for clients' certificates. Values are those of ``tls.server.need.client.auth``."""

    NONE = "none"
    OPTIONAL = "optional"
    """One that is shown must be good."""
    REQUIRE = "require"


_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE, ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL, ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


class ContextSource:
    """Call it for the context of a new connection. Connections that stand keep theirs."""

    def __init__(self, paths: Sequence[str], make: Callable[[], ssl.SSLContext]) -> None:
        """Raises ``ValueError`` when the files do not make a context now."""
        self.reloads = 0
        self.reload_error: str | None = None
        """Why the files as they are now could not be used; the former context stays in use."""
        self._paths, self._make = tuple(paths), make
        self._seen = self._stamp()
        try:
            self._context = make()
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ValueError(f"TLS: {', '.join(self._paths)} must be usable PEM files: {error}") from error

    def __call__(self) -> ssl.SSLContext:
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._context = self._make()
            except (OSError, ssl.SSLError, ValueError) as error:
                # A file may be half written, or newer than its partner: look again when files change.
                self.reload_error = str(error)
                logger.warning("TLS: the former certificate stays in use: %s", error)
            else:
                self.reloads += 1
                self.reload_error = None
        return self._context

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        stamps = []
        for path in self._paths:
            try:
                found = os.stat(path)
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return tuple(stamps)


def server_context(
    cert: str, key: str, *, key_password: str | None = None, ca: str | None = None,
    client_auth: ClientAuth = ClientAuth.NONE, alpn: Sequence[str] = (),
) -> ContextSource:
    """Return a context for accepting, from PEM files: ``cert`` has its chain, ``ca`` signs clients' certificates.

    ``alpn``: what else is spoken on this port; RocketMQ's clients offer nothing. Raises ``ValueError``.
    """
    if client_auth is not ClientAuth.NONE and ca is None:
        raise ValueError(f"TLS: client_auth = {client_auth.value!r} needs a ca to check certificates with")

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = _VERIFY[client_auth]
        _load(context, cert, key, key_password, ca)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    return ContextSource([path for path in (cert, key, ca) if path], make)


def client_context(
    *, ca: str | None = None, cert: str | None = None, key: str | None = None, key_password: str | None = None,
) -> ContextSource:
    """Return a context for dialling. Without ``ca`` connections are encrypted, but the server is not verified.

    Host names are not checked: brokers and controllers are known by address. Raises ``ValueError``.
    """
    if (cert is None) != (key is None):
        raise ValueError("TLS: a client's cert and key come together")

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED if ca else ssl.CERT_NONE
        _load(context, cert, key, key_password, ca)
        return context

    return ContextSource([path for path in (cert, key, ca) if path], make)


def _load(
    context: ssl.SSLContext, cert: str | None, key: str | None, key_password: str | None, ca: str | None
) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if cert is not None:
        context.load_cert_chain(cert, key, password=key_password or "")  # "": never ask at the terminal
    if ca is not None:
        context.load_verify_locations(ca)
