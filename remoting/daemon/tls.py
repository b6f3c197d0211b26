"""The keys ``tls.server.*`` that every server's configuration has, ``tls.client.*``, and the certificates they name.

Loading one reads its files; knows no stream, so that configurations stay free of trio.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from remoting.daemon.keys import ConfigError, key
from remoting.tls import ClientAuth, client_context, server_context

if TYPE_CHECKING:
    from remoting.streams import TLSContext


_SECRET: Final = "tls.server.keyPassword"
HIDDEN: Final = "******"


def hidden(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties for people and for answers: without the password."""
    return {name: HIDDEN if name == _SECRET and value else value for name, value in properties.items()}


@attrs.frozen(kw_only=True)
class TLSKeys:
    """Part of a configuration."""

    tls_server_mode: str = key(
        "permissive", "TLS on the same port: disabled, permissive (both) or enforcing", name="tls.server.mode",
        choices=("disabled", "permissive", "enforcing"))
    tls_server_cert_path: str = key("", "PEM file of the certificate and its chain", name="tls.server.certPath")
    tls_server_key_path: str = key("", "PEM file of its key", name="tls.server.keyPath")
    tls_server_key_password: str = key("", "password of the key", name="tls.server.keyPassword")
    tls_server_trust_cert_path: str = key(
        "", "PEM file of what clients' certificates are signed by", name="tls.server.trustCertPath")
    tls_server_need_client_auth: str = key(
        "none", "whether clients must show certificates", name="tls.server.need.client.auth",
        choices=("none", "optional", "require"))


@attrs.frozen(kw_only=True, slots=False)
class TLSClientKeys:
    """Part of a configuration of a server that asks others; the keys are Java's system properties."""

    tls_enable: bool = key(False, "TLS to name servers, controllers and other brokers", name="tls.enable")
    tls_client_trust_cert_path: str = key(
        "", "PEM file of what their certificates must be signed by; default: any", name="tls.client.trustCertPath")
    tls_client_cert_path: str = key("", "PEM file of the certificate to show them", name="tls.client.certPath")
    tls_client_key_path: str = key("", "PEM file of its key", name="tls.client.keyPath")


def client_tls_of(config: TLSClientKeys) -> TLSContext | None:
    """What ``tls.enable`` and ``tls.client.*`` say; None without. Raises ``ConfigError``."""
    if not config.tls_enable:
        return None
    try:
        return client_context(ca=config.tls_client_trust_cert_path or None, cert=config.tls_client_cert_path or None,
                              key=config.tls_client_key_path or None)
    except ValueError as error:
        raise ConfigError("tls.client.certPath", config.tls_client_cert_path, str(error)) from None


def tls_of(config: TLSKeys, *, raft_alpn: str = "") -> TLSContext | None:
    """What ``tls.server.*`` say; None without a certificate. Raises ``ConfigError``.

    ``raft_alpn``: raft shares the port, so whoever has a certificate is asked for it.
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
