"""The keys ``tls.server.*`` that every server's configuration has, and ``tls.client.*``.

They name certificates; whoever loads those is a shell. Knows no file and no stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from remoting.daemon.keys import key

_SECRET: Final = "tls.server.keyPassword"
HIDDEN: Final = "******"


def hidden(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties for people and for answers: without the password."""
    return {name: HIDDEN if name == _SECRET and value else value for name, value in properties.items()}


@attrs.frozen(kw_only=True)
class TLSKeys:
    """The part of a configuration that is about TLS."""

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
