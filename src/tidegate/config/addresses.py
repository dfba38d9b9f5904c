"""Where do we listen, and where is an engine? Addresses and origins, read from text.

Reading never connects or resolves anything. What it refuses it says in words that name the remedy,
and never repeats what could be a credential.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,254}}\Z){_LABEL}(?:\.{_LABEL})*\.?")  # lengths: RFC 1035, section 2.3.4
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*")
_PORTS = {"http": 80, "https": 443}


class Address(msgspec.Struct, frozen=True):
    """Where to listen: an IP address or a name, and a port (0: any free one)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port`; IPv6 in brackets. ValueError says what is wrong and the remedy."""
        host, colon, port = text.rpartition(":")
        if not colon or not host:
            raise ValueError(
                "needs a host and a port, such as 127.0.0.1:8080 (0.0.0.0:8080 for every interface)"
            )
        return cls(_host(host), _port(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return authority(self.host, self.port)


class Origin(msgspec.Struct, frozen=True):
    """Where an engine answers: scheme, host, port, and a prefix before its routes ("" or "/engine")."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Read a base URL. ValueError says what is wrong and the remedy."""
        try:
            parts = urlsplit(text)
        except ValueError:
            raise ValueError("is not a URL; write such as http://10.0.0.1:8000") from None
        if parts.scheme not in _PORTS or "//" not in text:
            raise ValueError("needs a URL that begins with http:// or https://, such as http://10.0.0.1:8000")
        if "@" in parts.netloc:
            raise ValueError("must not hold a credential; use credential_env or credential_file")
        if parts.query or parts.fragment or text.endswith(("?", "#")):
            raise ValueError("must not have a query or a fragment; leave off what follows ? or #")
        path = parts.path.rstrip("/")
        if not _PATH.fullmatch(path):
            raise ValueError("has a path with characters that a URL must escape, or with empty segments")
        if path.endswith("/v1"):
            raise ValueError("must not end in /v1; leave it off, the API's own paths are added to the URL")
        host, port = _split_netloc(parts.netloc, _PORTS[parts.scheme])
        return cls(parts.scheme, host.lower(), port, path)

    @property
    def loopback(self) -> bool:
        """Whether the engine is on this machine."""
        return is_loopback(self.host)

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """What belongs in the Host header."""
        return authority(self.host, self.port, _PORTS[self.scheme])

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself; a name other than localhost is not taken to be."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def authority(host: str, port: int, default_port: int | None = None) -> str:
    """`host:port` with IPv6 in brackets; the port is left out where it is the default."""
    bare = f"[{host}]" if ":" in host else host
    return bare if port == default_port else f"{bare}:{port}"


def _split_netloc(netloc: str, default_port: int) -> tuple[str, int]:
    host, colon, port = netloc.rpartition(":")
    if not colon or netloc.endswith("]"):
        return _host(netloc), default_port
    number = _port(port)
    if number == 0:
        raise ValueError("has port 0; an engine's port is 1 to 65535")
    return _host(host), number


def _host(text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        try:
            if ip_address(text[1:-1]).version == 6:
                return text[1:-1]
        except ValueError:
            pass
        raise ValueError("has brackets around something that is no IPv6 address")
    if ":" in text:
        raise ValueError('has an IPv6 address without brackets; write such as "[::1]:8080"')
    if not _HOST.fullmatch(text):
        raise ValueError("needs a host that is a name or an IP address")
    return text


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise ValueError("needs a port from 0 to 65535 after the colon")
    return int(text)
