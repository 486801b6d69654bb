"""Settings of the label noise."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rofl.core.settings import Spec
from rofl.data.sources import cifar10n
from rofl.errors import UserError


class NoiseSpec(Spec):
    """The table `noise`: the label noise that is added.

    Noise is applied to the whole set before it is distributed, unless it differs between clients by design.

    Attributes:
        kind: symmetric: any other class; pair: the next class; redraw: any class, the true one included, as FedCorr
            draws it; mixed: symmetric at one half of the clients and pair at the other; instance: images that look
            like another class get its label; all at `ratio`. human: the labels of CIFAR-10N.
        ratio: the share of wrong labels; for redraw, the share of redrawn labels.
        labels: which labels of CIFAR-10N, for kind = human.
        client_spread: the paper's eta: clients are in five groups with ratios from ratio - eta to ratio + eta.
        client_min: with `client_max`, the range from which each client's ratio is drawn uniformly; FedCorr's tau.
        client_max: the upper end of the range; 0 for the same ratio everywhere.
        noisy_clients: FedCorr's rho: the probability that a client has wrong labels at all.
        fully_noisy_class: all labels of one class of each client are wrong.
        on_user_data: allow noise on user data, for experiments whose labels are known to be right.
    """

    kind: Literal["symmetric", "pair", "redraw", "mixed", "instance", "human"] = "symmetric"
    ratio: Annotated[float, Field(ge=0, lt=1)] = 0.4
    labels: Literal["aggre", "random1", "random2", "random3", "worse"] = "worse"
    client_spread: Annotated[float, Field(ge=0)] = 0.0
    client_min: Annotated[float, Field(ge=0, le=1)] = 0.0
    client_max: Annotated[float, Field(ge=0, le=1)] = 0.0
    noisy_clients: Annotated[float, Field(ge=0, le=1)] = 1.0
    fully_noisy_class: bool = False
    on_user_data: bool = False

    @model_validator(mode="after")
    def _check_together(self) -> "NoiseSpec":
        if self.kind == "human" and self.per_client:
            raise UserError(
                f"noise.{self._per_client_keys()[0]} is for drawn noise, not for noise.kind = human.",
                "noise.kind=symmetric",
            )
        low, high = self.ratio - self.client_spread, self.ratio + self.client_spread
        if self.client_spread and not 0 <= low <= high < 1:
            raise UserError(
                f"noise.client_spread = {self.client_spread:g} around noise.ratio = {self.ratio:g} goes from {low:g} "
                f"to {high:g}, and noise lies in [0, 1).",
                "a smaller noise.client_spread",
            )
        if self.client_min > self.client_max:
            raise UserError(
                f"noise.client_min = {self.client_min:g} is above noise.client_max = {self.client_max:g}.",
                "noise.client_max=1",
            )
        if self.client_max and self.client_spread:
            raise UserError("noise.client_spread and noise.client_max both say how clients differ.", "one of them")
        if self.fully_noisy_class and self.kind in ("redraw", "instance"):
            raise UserError(f"noise.fully_noisy_class is not for noise.kind = {self.kind}.", "noise.kind=symmetric")
        return self

    def _per_client_keys(self) -> list[str]:
        """Return the active settings that differ between clients."""
        in_effect = {
            "fully_noisy_class": self.fully_noisy_class,
            "client_spread": self.client_spread > 0,
            "client_max": self.client_max > 0,
            "noisy_clients": self.noisy_clients < 1,
            "kind": self.kind == "mixed",
        }
        return [key for key, used in in_effect.items() if used]

    @property
    def per_client(self) -> bool:
        """Whether the noise differs between clients by design; it is then applied after the partition."""
        return bool(self._per_client_keys())

    @property
    def is_drawn(self) -> bool:
        """Whether these settings add noise to labels."""
        return self.kind != "human" and (self.expected_ratio > 0 or self.fully_noisy_class or self.client_spread > 0)

    @property
    def expected_ratio(self) -> float:
        """The share of wrong labels that tau = "known" uses: the paper's epsilon, also with `fully_noisy_class`.

        >>> NoiseSpec(ratio=0.2).expected_ratio, NoiseSpec(kind="human").expected_ratio
        (0.2, 0.4021)
        >>> NoiseSpec(kind="redraw", client_min=0.5, client_max=1.0, noisy_clients=0.8).expected_ratio
        0.6
        """
        if self.kind == "human":
            return cifar10n.RATES[self.labels]
        mean = (self.client_min + self.client_max) / 2 if self.client_max else self.ratio
        return round(self.noisy_clients * mean, 12)

    @property
    def text(self) -> str:
        """A short description of the noise.

        >>> NoiseSpec(client_spread=0.2, fully_noisy_class=True).text
        'symmetric 0.4 ± 0.2, one class entirely wrong'
        >>> NoiseSpec(kind="human").text
        'human worse'
        >>> NoiseSpec(kind="redraw", client_min=0.5, client_max=1.0, noisy_clients=0.8).text
        'redraw 0.5 to 1, at 80 % of the clients'
        """
        if self.kind == "human":
            return f"human {self.labels}"
        spread = f" ± {self.client_spread:g}" if self.client_spread else ""
        ratio = f"{self.client_min:g} to {self.client_max:g}" if self.client_max else f"{self.ratio:g}{spread}"
        share = f", at {100 * self.noisy_clients:g} % of the clients" if self.noisy_clients < 1 else ""
        return f"{self.kind} {ratio}{share}" + (", one class entirely wrong" if self.fully_noisy_class else "")
