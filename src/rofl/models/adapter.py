"""Adapts any `torch.nn.Module` to a Network: finds its features and checks its output."""

import copy

import torch
from torch import Tensor, nn

from rofl.errors import UserError
from rofl.models.network import LogitsOnly, Network, mixed_precision

_HINT = "a forward that gives logits (B, K), or logits and features (B, d)"


class AdaptedNetwork(Network):
    """Wraps a module whose forward returns logits or (logits, features).

    If it returns only logits, the features are the input of the last `nn.Linear` that a forward pass calls, or the
    output of the layer that `features` names. One pass over two blank images finds the layer and the sizes, and
    initialises lazy layers. Tensor names are those of the module, with the prefix "module.".

    Args:
        module: the classifier; an attribute `pretrained = True` marks pretrained weights.
        shape: channels, height and width of an input.
        classes: K, the number of classes.
        features: the name of the layer whose output is the features, as `module.named_modules()` has it.

    Raises:
        UserError: the output has another form, there is no such layer, or no linear layer to take features from.
    """

    def __init__(self, module: nn.Module, shape: tuple[int, int, int], classes: int, features: str = "") -> None:
        super().__init__(0, classes)
        self.module = module
        self.pretrained = bool(getattr(module, "pretrained", False))
        if features and features not in dict(module.named_modules()):
            names = ", ".join(name for name, _ in module.named_children())
            raise UserError(f"The model has no layer {features!r} to take features from.", names)
        self._features = features
        self._head = _last_linear(module, shape)  # "" if the module calls none
        with torch.no_grad():
            logits, vectors = self.eval()(torch.zeros(2, *shape))
        self.train()
        if logits.shape != (2, classes):
            raise UserError(f"The model returns logits {tuple(logits.shape)} for 2 images of {classes} classes.", _HINT)
        self.feature_size = int(vectors.shape[1])
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) -> logits (B, K), features (B, d), both in float32."""
        caught: list[Tensor] = []
        if self._features:
            layer = self.module.get_submodule(self._features)
            handle = layer.register_forward_hook(lambda _layer, _inputs, output: caught.append(output))
        elif self._head:
            layer = self.module.get_submodule(self._head)
            handle = layer.register_forward_pre_hook(lambda _layer, inputs: caught.append(inputs[0]))
        else:
            handle = None
        try:
            with mixed_precision(x.device):
                output = self.module(x)
        finally:
            if handle is not None:  # registered for one pass: hooks do not survive a copy of the network
                handle.remove()
        if isinstance(output, tuple) and len(output) == 2 and not self._features:
            logits, features = output
        else:
            logits, features = output, caught[-1] if caught else None
        if not isinstance(logits, Tensor) or not isinstance(features, Tensor):
            raise UserError(f"The model's forward returns {_describe(output)}, which has no features.", _HINT)
        return logits.float(), features.flatten(1).float()

    def logits_only(self) -> nn.Module:
        """Return a copy of the wrapped module: the hooks that find features cannot be exported."""
        return LogitsOnly(copy.deepcopy(self.module).eval())

    @property
    def head(self) -> nn.Module:
        """The last linear layer, or the whole network if there is none."""
        return self.module.get_submodule(self._head) if self._head else self


def adapt(module: nn.Module, shape: tuple[int, int, int], classes: int, features: str = "") -> Network:
    """Return a module as a Network; a Network is returned unchanged.

    Args:
        module: the classifier.
        shape: channels, height and width of an input.
        classes: the number of classes.
        features: see `AdaptedNetwork`.
    """
    return module if isinstance(module, Network) else AdaptedNetwork(module, shape, classes, features)


def _last_linear(module: nn.Module, shape: tuple[int, int, int]) -> str:
    """Return the name of the last linear layer that a forward pass calls, or ""."""
    called: list[str] = []
    handles = [
        layer.register_forward_hook(lambda _layer, _inputs, _output, name=name: called.append(name))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        with torch.no_grad():
            module.eval()(torch.zeros(2, *shape))
    finally:
        for handle in handles:
            handle.remove()
        module.train()
    return called[-1] if called else ""


def _describe(output: object) -> str:
    if isinstance(output, Tensor):
        return "logits only, and it calls no linear layer"
    if isinstance(output, tuple):
        return f"{len(output)} values"
    return f"a {type(output).__name__}"
