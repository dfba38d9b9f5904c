"""Which TLS contexts does a listener or a client use? TLS 1.2 or later, HTTP/1.1 only."""

from __future__ import annotations

import ssl

from tidegate.core.errors import ConfigurationError


def server_context(cert_path: str, key_path: str, client_ca_path: str | None = None) -> ssl.SSLContext:
    """For a listener; with `client_ca_path`, only clients with a certificate from there get in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load(context, cert_path, key_path)
    if client_ca_path is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, client_ca_path)
    return context


def client_context(
    ca_path: str | None = None, cert_path: str | None = None, key_path: str | None = None
) -> ssl.SSLContext:
    """For calls to an engine, which is always verified: against `ca_path`, else the system's authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if ca_path is None:
        context.load_default_certs()
    else:
        _trust(context, ca_path)
    if cert_path is not None:
        _load(context, cert_path, key_path)
    return context


def _load(context: ssl.SSLContext, cert_path: str, key_path: str | None) -> None:
    try:
        context.load_cert_chain(cert_path, key_path, password="")  # else an encrypted key asks the terminal
    except OSError as error:  # includes ssl.SSLError
        raise ConfigurationError([f"{cert_path}: certificate or key cannot be used: {error}"]) from error


def _trust(context: ssl.SSLContext, ca_path: str) -> None:
    try:
        context.load_verify_locations(ca_path)
    except OSError as error:
        raise ConfigurationError([f"{ca_path}: certificate authorities cannot be used: {error}"]) from error
