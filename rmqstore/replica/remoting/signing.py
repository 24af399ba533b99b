"""Signed requests, as brokers with access control want them (Java: AclClientRPCHook, AclUtils)."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

_ACCESS_KEY, _SECURITY_TOKEN, _SIGNATURE = "AccessKey", "SecurityToken", "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whoever asks; the secret never goes over the line, nor into a `repr`."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def signed(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """The fields with name and signature: HMAC-SHA1 of all values in the order of their names, then of the body."""
        named = {**fields, _ACCESS_KEY: self.access_key}
        if self.security_token:
            named[_SECURITY_TOKEN] = self.security_token
        content = "".join(named[name] for name in sorted(named) if name != _SIGNATURE).encode() + body
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        return {**named, _SIGNATURE: base64.b64encode(digest).decode()}
