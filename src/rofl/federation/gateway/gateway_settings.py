"""The settings of a gateway."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class GatewaySettings:
    """All that a gateway needs to know at its start, as JSON can hold it.

    Attributes:
        instance: A random name; a site that sees another one knows that the coordinator was restarted.
        version: Of rofl.
        superlink: The SuperLink's URL.
        superlink_ca: The file of the authority that signed the SuperLink's certificate; "" if it speaks plain HTTP.
        certificate: The file of the gateway's own certificate; "" for plain HTTP, on this machine only.
        key: The file of its private key.
        hold: Seconds for which a poll for a message is held until there is one.
        max_bytes: The largest request that is accepted.
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
    """Return the TLS of a server: 1.2 or newer, and no renegotiation.

    Raises:
        OSError: If the files cannot be used together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_cert_chain(certificate, key)
    return context
