"""The methods by name."""

import inspect
from dataclasses import is_dataclass
from typing import Any

from rofl.core.registry import Registry
from rofl.errors import UserError
from rofl.methods.base import Method
from rofl.methods.coteaching import CoTeaching
from rofl.methods.fedavg import FedAvg
from rofl.methods.fedcorr import FedCorr
from rofl.methods.feddiv import FedDiv
from rofl.methods.fedelc import FedElc
from rofl.methods.fedfixer import FedFixer
from rofl.methods.fedgr import FedGR
from rofl.methods.fedlsr import FedLsr
from rofl.methods.fednoro import FedNoRo
from rofl.methods.fedprox import FedProx
from rofl.methods.joint import Joint
from rofl.methods.rofl import Rofl
from rofl.methods.rofl_plus import RoflPlus
from rofl.methods.selflearning import SelfLearning

_MEMBERS = (
    "init",
    "zero_update",
    "client_update",
    "server_update",
    "with_noise_rate",
    "with_rounds",
    "with_clients",
    "centralized",
    "cautious",
    "wire_dtype",
)


_OTHER_NAMES = {"fedavg": "plain", "fed-avg": "plain", "fed_avg": "plain", "co-teaching": "coteaching"}


class MethodRegistry(Registry[type[Method]]):
    """Method classes by name; checks that a class of another package can be used as a method."""

    def find(self, name: Any) -> type[Method]:
        """Return the class of a name, such as "rofl" or "package.module:Class".

        Raises:
            UserError: the name is unknown, or the class is not a dataclass or lacks a part of the interface.
        """
        ours = _OTHER_NAMES.get(name.casefold()) if isinstance(name, str) else None
        if ours and name not in self.names():  # `names` searches all installed packages
            raise UserError(f"There is no method {name!r}: here it is called {ours}.", ours)
        kind = super().find(name)
        if not (inspect.isclass(kind) and is_dataclass(kind)):
            raise UserError(
                f"The method {name} is not a dataclass, whose fields are its settings.", "@dataclass(frozen=True)"
            )
        abstract: frozenset[str] = getattr(kind, "__abstractmethods__", frozenset())
        missing = [member for member in _MEMBERS if member in abstract or not callable(getattr(kind, member, None))]
        if missing:
            raise UserError(
                f"The method {name} lacks {', '.join(missing)}.",
                "inherit from Method in rofl.methods; help(Method) explains each function",
            )
        return kind


METHODS = MethodRegistry(
    "method",
    "rofl.methods",
    {
        "plain": FedAvg,
        "fedprox": FedProx,
        "coteaching": CoTeaching,
        "joint": Joint,
        "selflearning": SelfLearning,
        "fedcorr": FedCorr,
        "fednoro": FedNoRo,
        "fedelc": FedElc,
        "feddiv": FedDiv,
        "fedgr": FedGR,
        "fedfixer": FedFixer,
        "fedlsr": FedLsr,
        "rofl": Rofl,
        "rofl-plus": RoflPlus,
    },
)
