"""The settings of the gateway's process, and its TLS context."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class GatewaySettings:
    """The settings of a gateway at its start; all fields can be written as JSON.

    Attributes:
        instance: A random name of this start; when it changes, sites know that the coordinator was restarted.
        version: The version of rofl.
        superlink: The SuperLink's URL.
        superlink_ca: The file of the authority that signed the SuperLink's certificate; "" if it speaks plain HTTP.
        certificate: The file of the gateway's own certificate; "" for plain HTTP, on this machine only.
        key: The file of the gateway's private key.
        hold: Seconds for which a poll without a result is held (long polling).
        max_bytes: The size of the largest accepted request.
    """

    instance: str
    version: str
    superlink: str
    superlink_ca: str = ""
    certificate: str = ""
    key: str = ""
    hold: float = 5.0
    max_bytes: int = 2**31


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return a TLS context for a server, with TLS 1.2 or newer and without renegotiation.

    Raises:
        OSError: If the files cannot be used together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_cert_chain(certificate, key)
    return context
