"""The certificates that a server's configuration names, loaded.

Reads their files; knows no stream, so that a server is told before it starts what is wrong with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remoting.daemon.keys import ConfigError
from remoting.daemon.tlskeys import TLSClientKeys, TLSKeys
from remoting.tls import ClientAuth, client_context, server_context

if TYPE_CHECKING:
    from remoting.streams import TLSContext


def client_tls_of(config: TLSClientKeys) -> TLSContext | None:
    """Return the context for ``tls.enable`` and ``tls.client.*``; None without. Raises ``ConfigError``."""
    if not config.tls_enable:
        return None
    try:
        return client_context(ca=config.tls_client_trust_cert_path or None, cert=config.tls_client_cert_path or None,
                              key=config.tls_client_key_path or None)
    except ValueError as error:
        raise ConfigError("tls.client.certPath", config.tls_client_cert_path, str(error)) from None


def tls_of(config: TLSKeys, *, raft_alpn: str = "") -> TLSContext | None:
    """Return the context for ``tls.server.*``; None without a certificate. Raises ``ConfigError``.

    ``raft_alpn``: raft shares the port, so clients are asked for certificates that they may have.
    """
    cert, private_key = config.tls_server_cert_path, config.tls_server_key_path
    if not cert and not private_key:
        if config.tls_server_mode == "enforcing":
            raise ConfigError("tls.server.mode", "enforcing", "needs tls.server.certPath and tls.server.keyPath")
        return None
    if not cert or not private_key:
        missing = "tls.server.keyPath" if cert else "tls.server.certPath"
        raise ConfigError(missing, "", "certificate and key come together")
    ca = config.tls_server_trust_cert_path or None
    client_auth = ClientAuth(config.tls_server_need_client_auth)
    if raft_alpn and ca and client_auth is ClientAuth.NONE:
        client_auth = ClientAuth.OPTIONAL
    try:
        return server_context(
            cert, private_key, key_password=config.tls_server_key_password or None, ca=ca, client_auth=client_auth,
            alpn=(raft_alpn,) if raft_alpn else ())
    except ValueError as error:
        raise ConfigError("tls.server.certPath", cert, str(error)) from None
