"""SGD as one call over all weights."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import Parameter


class FusedSGD:
    """SGD with the bits of `torch.optim.SGD(..., fused=True)`.

    torch's class imports its compiler first, which takes a worker longer than its first clients do.

    Args:
        parameters: the weights.
        lr: learning rate.
        momentum: 0 for none.
        weight_decay: L2 penalty.
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        self._parameters = list(parameters)
        self._rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "dampening": 0.0}
        self._momenta: list[Tensor] = []

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights that have a gradient."""
        moving: list[Tensor] = [parameter for parameter in self._parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in moving if parameter.grad is not None]
        first = self._rates["momentum"] > 0 and not self._momenta
        if first:
            self._momenta = [torch.empty_like(parameter) for parameter in moving]  # the first step fills them
        torch._fused_sgd_(
            moving,
            gradients,
            self._momenta,
            **self._rates,
            nesterov=False,
            maximize=False,
            is_first_step=first,
            grad_scale=None,
            found_inf=None,
        )
