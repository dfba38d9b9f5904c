"""What does the configuration file say, and what is wrong with it?"""

from tidegate.config.addresses import Address, Origin
from tidegate.config.credentials import credential_of
from tidegate.config.json_schema import schema
from tidegate.config.keys import digest_of, new_key
from tidegate.config.loading import for_url, load, parse
from tidegate.config.locking import lock
from tidegate.config.model import ANONYMOUS, Caller, Config

__all__ = [
    "ANONYMOUS",
    "Address",
    "Caller",
    "Config",
    "Origin",
    "credential_of",
    "digest_of",
    "for_url",
    "load",
    "lock",
    "new_key",
    "parse",
    "schema",
]
