"""Small problems in the package's objects and, with the same numbers, in the arrays that the loop oracle takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from cavity.data.training_data import ArrayData
from cavity.gp.gaussian import Natural
from cavity.gp.prior import Conditional, Prior
from cavity.inference import Batch, Objective, Terms
from cavity.kernels import RBF, Kernel
from cavity.training.fixed_point import relative_change
from cavity.training.history import Watch
from cavity.training.initial import initial_prior
from cavity.training.loop import Trainer
from cavity.training.parameters import HyperPrior, ParametricPrior
from cavity.training.plan import Plan
from cavity.training.step import Inference

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Rows with labels and weights, and the hyper-parameters of an RBF kernel per class."""

    X: Array
    y: NDArray[np.int64]
    Z: Array
    lengthscale: Array
    variance: Array
    noise: Array
    weight: Array = field(default_factory=lambda: np.ones(0))

    @property
    def hyper(self) -> tuple[Array, Array, Array, Array]:
        """As the oracle's fixed points take them."""
        return self.Z, self.lengthscale, self.variance, self.noise

    @property
    def theta(self) -> dict[str, Array]:
        """As the oracle's log Z functions take them."""
        logs = {f"log_{name}": np.log(getattr(self, name)) for name in ("lengthscale", "variance", "noise")}
        return {"Z": self.Z, **logs}

    @property
    def weights(self) -> Array:
        return self.weight if len(self.weight) else np.ones(len(self.X))

    def data(self) -> ArrayData:
        X, y, weight = (torch.as_tensor(a) for a in (self.X, self.y, self.weights))
        return ArrayData(X, y, weight, len(self.Z))

    def model(
        self, kernel: Kernel | None = None, learned: tuple[bool, bool] = (True, True), **changes: Any
    ) -> ParametricPrior:
        kernel = RBF(self.lengthscale, self.variance) if kernel is None else kernel
        options = {"shared": (False, False), "dtype": torch.float64} | changes
        return initial_prior(
            kernel, self.X, len(self.Z), self.Z, self.noise, learned, options["shared"], 1.0,
            torch.device("cpu"), options["dtype"],
        )  # fmt: skip

    def prior(self, **changes: Any) -> Prior:
        model = self.model(**changes)
        return model.prior(model.start())


def random_problem(
    seed: int = 0, n_rows: int = 15, n_classes: int = 3, n_inducing: int = 4, n_features: int = 2
) -> Problem:
    """Overlapping clouds, every class with rows, every hyper-parameter with its own value."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % n_classes
    X = rng.standard_normal((n_rows, n_features)) + 1.5 * rng.standard_normal((n_classes, n_features))[y]
    return Problem(
        X=X,
        y=y,
        Z=rng.standard_normal((n_classes, n_inducing, n_features)),
        lengthscale=rng.uniform(0.8, 2.0, (n_classes, n_features)),
        variance=rng.uniform(0.8, 2.5, n_classes),
        noise=rng.uniform(0.1, 0.4, n_classes),
    )


def shuffled(data: ArrayData, size: int, generator: torch.Generator) -> list[Batch]:
    """The batches of an epoch, in random order."""
    epoch = int(torch.randint(2**30, (), generator=generator))
    return [data.batch(draw) for draw in data.draws(size, 0, epoch)]


def random_sites(n_classes: int, size: int, seed: int = 0) -> Natural:
    """Natural parameters of some product of sites."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n_classes, size, size))
    r = rng.standard_normal((n_classes, size))
    return Natural(torch.from_numpy(A @ A.transpose(0, 2, 1)), torch.from_numpy(r))


def kappa(prior: Prior, f: Conditional) -> torch.Tensor:
    """k(x, x) + noise of every row."""
    return f.blocks.diag + prior.noise[:, None]


def update(method: Any, prior: Prior, f: Conditional, state: Any, batch: Batch, damping: float) -> Any:
    """The state after one update."""
    return Inference(method).update(prior, f, state, batch, damping, None)[0]


def objective(method: Any, prior: Prior, f: Conditional, state: Any, batch: Batch, exact: bool = False) -> Objective:
    """log Z_q and its gradients."""
    ((_, found),) = Inference(method).objectives(prior, f, state, batch, None, Terms(exact=exact))
    return found


def refresh(method: Any, prior: Prior, state: Any, batches: Iterable[Batch]) -> Any:
    """The state with its sums made from its sites."""
    return Inference(method).refresh(prior, state, batches)


def converge(method: Any, prior: Prior, data: ArrayData, tol: float = 1e-12, damping: float = 0.5, start: Any = None):
    """The state at the fixed point, from full sweeps."""
    rows = prior.conditional(data.X)
    state = method.init(prior, data.own_weight, len(data)) if start is None else start
    for _ in range(3000):
        old, state = state, update(method, prior, rows, state, data.full, damping)
        if relative_change(old, state) < tol:
            return state
    raise AssertionError(f"no fixed point after 3000 sweeps: still moving by {relative_change(old, state):.1e}")


def sweeps(method: Any, prior: Prior, data: ArrayData, n_sweeps: int, damping: float = 0.5):
    """The state after some full sweeps."""
    rows, state = prior.conditional(data.X), method.init(prior, data.own_weight, len(data))
    for _ in range(n_sweeps):
        state = update(method, prior, rows, state, data.full, damping)
    return state


PLAN = Plan(updates="inner", batch_size=None, max_epochs=5, max_seconds=None, tol=0.0, damping=0.5)


def trainer(
    method: Any,
    problem: Problem,
    plan: Plan = PLAN,
    spec: dict[str, Any] | None = None,
    watch: Watch | None = None,
    **model: Any,
) -> Trainer:
    """A training run of the problem, with no priors on the hyper-parameters unless `spec` asks for them."""
    built = problem.model(**model)
    return Trainer(built, method, problem.data(), plan, HyperPrior(built, spec or {}), watch=watch)


class MadeUp:
    """What an optimizer of a test need not care about."""

    def shrink(self) -> None:
        """Steps stay as they are."""

    def recover(self, steps: int) -> None:
        """They have never become smaller."""

    def learning_rate(self) -> float:
        return 0.01

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """There is nothing to remember."""


def hostile(examples: int) -> settings:
    """Return the settings of a property that is tried on the same examples every time."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
