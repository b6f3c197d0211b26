"""Mutual TLS: contexts that follow changes of their files, and the check of a peer's certificate.

Knows ``ssl`` and the file times; nothing of connections, messages or trio.
"""

from __future__ import annotations

import os
import ssl
from typing import Any, Final

import attrs

from raft.errors import ConfigError
from raft.hello import Refused
from raft.status import RefusalKind

ALPN: Final = "quorate-raft/1"


@attrs.frozen(kw_only=True)
class TLSConfig:
    """Paths of PEM files. ``ca`` signs every node's certificate; ``cert`` holds this node's with its chain, ``key`` its
    key."""

    cert: str
    key: str
    ca: str
    check_node_id: bool = False
    """True to demand that a peer's certificate names its node id: as a DNS name (subjectAltName) or as common name."""
    clients_need_certificate: bool = True
    """True if clients need a verified certificate too. Nodes always do."""


class Contexts:
    """SSL contexts, made anew when a file has changed. Present connections keep theirs."""

    def __init__(self, config: TLSConfig, *, alpn: tuple[str, ...] = (ALPN,)) -> None:
        """Read the files. Raises ``ConfigError`` if they do not make a context now."""
        self.config = config
        self.reloads = 0
        self.reload_error: str | None = None
        """Reason why the present files could not be used; the former certificate stays in use."""
        self._alpn = list(alpn)
        self._seen = self._stamp()
        try:
            self._server, self._client = self._load()
        except (OSError, ssl.SSLError, ValueError, TypeError) as error:
            files = (config.cert, config.key, config.ca)
            raise ConfigError("tls", files, f"must be usable PEM files: {error}") from error

    @property
    def server(self) -> ssl.SSLContext:
        """Return the context for accepting. It verifies a certificate if there is one; a client without one is refused
        later, in words."""
        self._refresh()
        return self._server

    @property
    def client(self) -> ssl.SSLContext:
        """Return the context for dialling. It verifies a server's certificate against ``ca``, but no host name, since
        nodes have ids."""
        self._refresh()
        return self._client

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        stamps = []
        for path in (self.config.cert, self.config.key, self.config.ca):
            try:
                found = os.stat(path)
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return tuple(stamps)

    def _refresh(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        try:
            self._server, self._client = self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            # A file may be half-written, or the key newer than its certificate: try again when they change.
            self.reload_error = str(error)
        else:
            self.reloads += 1
            self.reload_error = None
        self._seen = stamp

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_mode = ssl.CERT_REQUIRED
        server.verify_mode = ssl.CERT_OPTIONAL
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.options |= ssl.OP_NO_RENEGOTIATION
            context.load_cert_chain(self.config.cert, self.config.key)
            context.load_verify_locations(self.config.ca)
            context.set_alpn_protocols(self._alpn)
        return server, client


def certificate_names(certificate: dict[str, Any] | None) -> set[str]:
    """Return DNS names and common names of a certificate that ``getpeercert`` returned."""
    if not certificate:
        return set()
    names = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    for part in certificate.get("subject", ()):
        names.update(value for key, value in part if key == "commonName")
    return names


def check_certificate(
    config: TLSConfig | None, certificate: dict[str, Any] | None, alpn: str | None, node: str
) -> None:
    """Raise ``Refused`` unless a verified certificate entitles the other end to be ``node`` ("": a client).

    Without a config, a server that shares its port does TLS itself: nodes need certificates there too.
    """
    if not certificate:
        if not node and (config is None or not config.clients_need_certificate):
            return
        who = f"node {node!r}" if node else "the client"
        raise Refused(RefusalKind.CERTIFICATE, f"{who} showed no certificate; this cluster wants one, signed by its CA")
    if node and alpn != ALPN:
        raise Refused(RefusalKind.CERTIFICATE, f"node {node!r} agreed on ALPN {alpn!r}, not on {ALPN!r}")
    if node and config and config.check_node_id and node not in (names := certificate_names(certificate)):
        raise Refused(RefusalKind.CERTIFICATE, f"the certificate of node {node!r} names {sorted(names)}, not that id")
