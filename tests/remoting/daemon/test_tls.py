"""Certificates that a configuration names: what is missing or damaged is told by its key before a server starts."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import attrs
import pytest
import trustme

from remoting.daemon.keys import ConfigError
from remoting.daemon.tls import client_tls_of, tls_of
from remoting.daemon.tlskeys import TLSClientKeys, TLSKeys


@attrs.frozen
class Papers:
    """Paths of an authority, a certificate and its key."""

    ca: str
    cert: str
    key: str

    @property
    def of_server(self) -> dict[str, Any]:
        return {"tls_server_cert_path": self.cert, "tls_server_key_path": self.key}


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    made = Papers(*(str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem")))
    authority.cert_pem.write_to_path(made.ca)
    issued.cert_chain_pems[0].write_to_path(made.cert)
    issued.private_key_pem.write_to_path(made.key)
    return made


def test_without_keys_there_is_no_tls() -> None:
    assert tls_of(TLSKeys()) is None and client_tls_of(TLSClientKeys()) is None


@pytest.mark.parametrize(("given", "key"), [
    ({"tls_server_mode": "enforcing"}, "tls.server.mode"),
    ({"tls_server_cert_path": "c"}, "tls.server.keyPath"),
    ({"tls_server_key_path": "k"}, "tls.server.certPath"),
    ({"tls_server_key_path": "k", "tls_server_mode": "enforcing"}, "tls.server.certPath"),
    ({"tls_server_cert_path": "no such", "tls_server_key_path": "k"}, "tls.server.certPath"),
])
def test_half_of_what_is_needed_is_told_by_its_key(given: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tls_of(TLSKeys(**given))
    assert raised.value.key == key


@pytest.mark.parametrize("damaged", ["ca", "cert", "key"])
@pytest.mark.parametrize("content", [
    b"", b"-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n", b"\xff" * 99])
def test_a_damaged_file_is_told(papers: Papers, damaged: str, content: bytes) -> None:
    Path(getattr(papers, damaged)).write_bytes(content)
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath"):
        tls_of(TLSKeys(**papers.of_server, tls_server_trust_cert_path=papers.ca))
    with pytest.raises(ConfigError, match=r"tls\.client\.certPath"):
        client_tls_of(TLSClientKeys(
            tls_enable=True, tls_client_trust_cert_path=papers.ca, tls_client_cert_path=papers.cert,
            tls_client_key_path=papers.key))


@pytest.mark.parametrize(("asked", "ca", "raft", "wanted"), [
    ("none", False, "", ssl.CERT_NONE), ("none", True, "", ssl.CERT_NONE), ("none", False, "raft", ssl.CERT_NONE),
    ("none", True, "raft", ssl.CERT_OPTIONAL), ("optional", True, "", ssl.CERT_OPTIONAL),
    ("require", True, "raft", ssl.CERT_REQUIRED), ("require", True, "", ssl.CERT_REQUIRED)])
def test_which_certificates_clients_are_asked_for(
    papers: Papers, asked: str, ca: bool, raft: str, wanted: ssl.VerifyMode,
) -> None:
    """Raft members show theirs on the shared port, so they are asked for them where an authority is known."""
    found = tls_of(TLSKeys(**papers.of_server, tls_server_trust_cert_path=papers.ca if ca else "",
                           tls_server_need_client_auth=asked), raft_alpn=raft)
    assert found is not None and found().verify_mode is wanted
