"""A site's check of the coordinator: whether it answers, whether it was restarted, and whether it admits this site."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from pydantic import AwareDatetime, BaseModel

from rofl.errors import UserError
from rofl.federation.credentials import SiteCredentials, load_private_key
from rofl.federation.gateway.admission import MAX_AHEAD, MAX_BEHIND, signed_headers


@dataclass
class CoordinatorLink:
    """An HTTP client of the coordinator's gateway.

    Attributes:
        server: The coordinator's host and port.
        credentials: The site's key and the trusted certificate; None for a federation on one machine.
    """

    server: str
    credentials: SiteCredentials | None

    def instance(self) -> str | None:
        """Return the random name that the coordinator has since its last start, or None if it does not answer.

        Raises:
            UserError: If the server's certificate was not signed by this federation's authority, if this machine's
                clock is wrong, or if the coordinator refuses this site's key.
        """
        try:
            headers = signed_headers(self._key) if self._key else {}
            found = CoordinatorState.model_validate_json(
                self._http.get("/v1/rofl", headers=headers).raise_for_status().content
            )
        except (httpx.HTTPError, ValueError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise _explain_certificate(self.server, str(error)) from error
            return None
        found.check_clock(datetime.now(UTC))
        if found.refused:
            raise UserError(f"The coordinator refuses this site: {found.refused}.", "new credentials from it")
        return found.instance

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey | None:
        """The site's private key; None without credentials."""
        if self.credentials is None:
            return None
        return load_private_key(self.credentials.key, load_ssh_private_key)

    @cached_property
    def _http(self) -> httpx.Client:
        """An HTTP client that trusts this federation's authority only."""
        if self.credentials is None:
            return httpx.Client(base_url=f"http://{self.server}", timeout=5, trust_env=False)
        trusted = ssl.create_default_context(cafile=str(self.credentials.ca))
        return httpx.Client(base_url=f"https://{self.server}", timeout=5, verify=trusted, trust_env=False)


class CoordinatorState(BaseModel):
    """The gateway's description of itself.

    Attributes:
        instance: A random name, new for each start of the coordinator.
        time: The coordinator's clock.
        refused: Why the coordinator refuses this site; "" if it does not.
    """

    instance: str
    time: AwareDatetime | None = None
    refused: str = ""

    def check_clock(self, now: datetime) -> None:
        """Compare the coordinator's clock with this machine's.

        Raises:
            UserError: If they differ by more than signatures allow.
        """
        ahead = 0.0 if self.time is None else (now - self.time).total_seconds()
        if -MAX_BEHIND < ahead < MAX_AHEAD:
            return
        differs = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the coordinator's"
        limits = f"at most {MAX_AHEAD:.0f} s ahead or {MAX_BEHIND:.0f} s behind are possible"
        raise UserError(f"This machine's clock is {differs}, and {limits}.", "set the clock, for example by NTP")


def _explain_certificate(server: str, error: str) -> UserError:
    """Return the error for a certificate that is expired, not yet valid, or of another authority or host."""
    if "expired" in error or "not yet valid" in error:
        problem = f"By this machine's clock, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, the coordinator's certificate"
        return UserError(f"{problem} is not valid ({error}).", "set the clock; else rofl serve --init there renews it")
    problem = f"The server at {server} cannot prove that it is the coordinator ({error})."
    return UserError(problem, "this federation's ca.crt, and a host that was named in --init")
