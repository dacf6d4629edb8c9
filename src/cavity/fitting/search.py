"""The search for kernel and scaling: everything is chosen by leave-one-out predictions.

EP gives the probability of each label from all other rows (`inference.full`). The sum of their logarithms chooses where
the search starts, learns length-scales, variances and sharpness, and compares the candidates. The search uses some of
the rows (`Search.choose`). For a small table, a full Gaussian process on all rows follows (`Search.run`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cavity.fitting.calibration import HeldOut
from cavity.fitting.encoding import Encoding, TableEncoding, encode_training
from cavity.fitting.rows import TrainingRows
from cavity.gp.prior import KERNEL, Prior
from cavity.gp.probabilities import log_p_of
from cavity.gp.sites import Site
from cavity.inference.full import FullEP, Labels, Latent
from cavity.kernels import BY_NAME, Kernel, Sum
from cavity.kernels.grouped import for_groups
from cavity.numerics.linalg import FactorizationError, add_to_diagonal_
from cavity.runtime.distributed import SINGLE_PROCESS, Workers
from cavity.training.history import Clock, Event, History
from cavity.training.initial import initial_prior, median_distance
from cavity.training.optimizers import Adam
from cavity.training.parameters import HyperPrior, ParametricPrior, PriorSpec

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# How these were chosen: docs/defaults.md.
KERNELS = ("rbf", "matern12")  # their sum: a smooth part and a rough one
THRESHOLDS, THRESHOLD_ROWS = ("matern12", "laplace"), 500  # tried after it on several columns of numbers; least rows
REACH = {"matern12": 4.0, "laplace": 4.0}  # initial length-scale over median distance, relative to the one of "rbf"
METRICS = ("cityblock", "euclidean")
NOISE = 1.0  # only the ratio of variance and noise matters
START_ROWS, LEARN_ROWS, LEAST_OF_CLASS = 300, 600, 20  # of the search
START_WORK, LEARN_WORK = 6e7, 8e8  # of a step, at most: classes times rows³
START_SWEEPS, START_DAMPING = 8, 0.6
SHORTEST, LONGEST, LOWEST, HIGHEST = -3, 6, -2, 5  # powers of 2 of the length-scale, and of 4 of the variance
FIRST = (0, 1), (0, 4), (2, 2), (2, 5)  # such powers, to start from
HANDICAP, ROUGHNESS = 1.02, 1.01  # factors of the loss with quantiles, and with `THRESHOLDS`
BEHIND, HOPELESS = 0.1, 0.12  # of the best start's loss, by which that of a candidate may be higher; before it climbs
STEPS, RATE, DAMPING = 25, 0.15, 0.5
DTYPE = torch.float32  # of the search
SHARED_FROM = 7  # classes: then all have one kernel
EVIDENCE_ROWS, MOST_EVIDENCE = 60.0, 0.7  # log Z has a weight of this number over that of the rows, and at most this
CLIP_STEPS = 7  # a gradient is cut at twice the median norm of the last ones
VARIANCE = 30.0  # median of its prior
LOG_SHARPNESS_SD = 0.3
TRIAL_STEPS = 10  # before only the best candidate is kept
FINAL_STEPS, FINAL_RATE, FINAL_WORK = 6, 0.1, 2.4e10  # on all rows; bound of classes times inputs³ of all steps
COARSE_SWEEPS, COARSE_TOL = 100, 7e-4  # in single precision
FINAL_SWEEPS, FINAL_TOL, FINAL_DAMPING = 200, 1e-3, 0.8
PRIORS: PriorSpec = {
    "lengthscale": (None, 2.0, math.inf),
    "relevance": 0.7,
    "spread": 0.3,
    "variance": (None, 3.0),
}
COMMON_RELEVANCE = 0.15  # where features are of one kind, such as pixels
MAX_EPOCHS = TRIAL_STEPS + STEPS + FINAL_STEPS


class _Adam(Adam):
    BETAS = 0.8, 0.95  # few steps: the averages follow quickly


@dataclass(frozen=True)
class FullGP:
    """A full Gaussian process on some rows.

    Args:
        features: of the distinct inputs, (n, D).
        labels: of the rows.
        kernel: the kernel for a length-scale and a variance.
        device: of all tensors.
        dtype: of the covariances.
    """

    features: Array
    labels: Labels
    kernel: Callable[[float, float], Kernel]
    device: torch.device
    dtype: torch.dtype = torch.float64

    @classmethod
    def on_rows(
        cls,
        rows: TrainingRows,
        encoding: Encoding,
        n_classes: int,
        names: Sequence[str],
        device: torch.device,
        dtype: torch.dtype = torch.float64,
    ) -> FullGP:
        """Return the process on these rows."""
        features, place = np.unique(encode_training(encoding, rows.X), axis=0, return_inverse=True)
        y, weight, index = (torch.as_tensor(part, device=device) for part in (rows.y, rows.weight, place.ravel()))
        own = torch.nn.functional.one_hot(y, n_classes).bool().T.contiguous()
        reach = dict(REACH)
        if "laplace" in names:
            manhattan, direct = (median_distance(features, np.random.default_rng(0), of) for of in METRICS)
            reach["laplace"] *= manhattan / direct

        def kernel(lengthscale: float, variance: float) -> Kernel:
            parts = [BY_NAME[n](lengthscale * reach.get(n, 1.0), variance / len(names)) for n in names]
            whole = parts[0] if len(parts) == 1 else Sum(tuple(parts))
            if not isinstance(encoding, TableEncoding):
                return whole
            return for_groups(whole, [group.column for group in encoding.groups], encoding.feature_groups)

        return cls(features, Labels(index, own, weight, len(features)), kernel, device, dtype)

    @property
    def n_classes(self) -> int:
        """C."""
        return len(self.labels.own)

    def model(self, lengthscale: float, variance: float, is_shared: bool = False) -> ParametricPrior:
        """Return the prior at its initial values; its kernel is learned, its noise and inducing points are not."""
        is_shared = is_shared or self.n_classes >= SHARED_FROM
        C, shared = 1 if is_shared else self.n_classes, (is_shared, True)
        kernel, Z, learned = self.kernel(lengthscale, variance), self.features[None], (True, False)
        model = initial_prior(
            kernel, self.features, C, Z, NOISE, learned, shared, lengthscale, self.device, torch.float64
        )
        values = {name: value.to(self.dtype) for name, value in model.values.items()}
        names = tuple(name for name in model.learned if name.startswith(KERNEL))
        return replace(
            model, values=values, learned=names, n_classes=self.n_classes, dtype=self.dtype, noise_in_u=False
        )

    def distance(self, seed: int) -> float:
        """Return the median distance between inputs."""
        return median_distance(self.features, np.random.default_rng(seed))


class Learned(NamedTuple):
    """Hyper-parameters, the sharpness that goes with them, their leave-one-out log density per row, and EP."""

    theta: Float[Tensor, "P"]
    sharpness: float = 1.0
    score: float = -math.inf
    ep: FullEP | None = None


class Start(NamedTuple):
    """A place on the grid of length-scales and variances, and its leave-one-out log density per row."""

    place: tuple[int, int]
    score: float

    def values(self, unit: float) -> tuple[float, float]:
        """Return the length-scale and the variance."""
        return unit * 2.0 ** self.place[0], 4.0 ** self.place[1]


class Choice(NamedTuple):
    """What defines a candidate: its encoding, the kernels that it sums, the median distance, and where it starts."""

    scaling: str | None
    encoding: Encoding
    kernels: Sequence[str]
    unit: float
    start: Start


@dataclass
class Candidate:
    """A candidate that is being learned: `states` yields its states, of which `learned` is the last so far."""

    choice: Choice
    model: ParametricPrior
    states: Iterator[Learned]
    learned: Learned

    @property
    def kernel(self) -> Kernel:
        """The kernel as learned so far."""
        prior = self.model.prior(self.learned.theta.to(torch.float64))
        return prior.kernel.fitted(prior.params)

    @property
    def loss(self) -> float:
        """The negative log density per row, with a handicap for what hides how far apart values are."""
        handicap = HANDICAP if self.choice.scaling == "quantile" else 1.0
        return -self.learned.score * handicap * (ROUGHNESS if self.choice.kernels == THRESHOLDS else 1.0)


class Found(NamedTuple):
    """The result of a search.

    Attributes:
        encoding: the best one.
        model, theta: the prior with all inputs as inducing points, and its hyper-parameters.
        ep, latent: q(f) at all inputs.
        epochs: steps of all candidates together.
    """

    encoding: Encoding
    model: ParametricPrior
    theta: Float[Tensor, "P"]
    ep: FullEP
    latent: Latent
    epochs: int


def some_rows(y: NDArray[np.int64], count: int, seed: int) -> Indices:
    """Draw about `count` rows; a class keeps its share of them, but at least 20 rows if it has them."""
    if len(y) <= count:
        return np.arange(len(y))
    order = np.random.default_rng(seed).permutation(len(y))
    size = np.bincount(y)
    wanted = np.maximum(np.rint(size * (count / len(y))).astype(int), np.minimum(size, LEAST_OF_CLASS))
    return np.sort(np.concatenate([order[y[order] == k][:n] for k, n in enumerate(wanted)]))


def covariance(prior: Prior) -> Float[Tensor, "_ n n"]:
    """Return K at the inputs, with the least noise on its diagonal, as `Prior.L` has it."""
    K = prior.K
    return add_to_diagonal_(K.clone(), prior.least_noise * K.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True))


def left_out_rows(ep: FullEP, q: Latent) -> HeldOut:
    """Return the leave-one-out predictions, as those of held-out rows."""
    labels = ep.labels
    mean, var = (part.cpu() for part in ep.left_out(q))
    weight, y = labels.weight.cpu(), labels.own.to(torch.int8).argmax(0).cpu()
    frequencies = (labels.own * labels.weight).sum(-1).cpu() / weight.sum()
    return HeldOut(mean, var, y, weight, 0.0, frequencies)


def log_density(part: HeldOut, sharpness: float) -> float:
    """Return the mean log probability of the labels."""
    log_p = log_p_of(part.mean * sharpness, part.var, part.epsilon).gather(0, part.y[None])[0]
    return float((part.weight * log_p).sum() / part.weight.sum())


def find_start(gp: FullGP, unit: float, first: Sequence[tuple[int, int]], least: float = -math.inf) -> Start:
    """Return where to start, by hill climbing on a grid from the best of the `first` places; one for all classes.

    If all of these are worse than `least`, the best of them is returned.
    """
    found: dict[tuple[int, int], float] = {}
    total = float(gp.labels.weight.sum())

    def score(place: tuple[int, int]) -> float:
        if place not in found:
            model = gp.model(*Start(place, 0.0).values(unit), is_shared=True)
            try:
                K = covariance(model.prior(model.start()))
                ep = FullEP.start(gp.labels, NOISE, DTYPE).converged(K, START_SWEEPS, START_DAMPING, 0.0).ep
                away = (place[1] * math.log(4.0) - math.log(VARIANCE)) / 3.0
                found[place] = log_density(left_out_rows(ep, ep.latent(K)), 1.0) - 0.5 * away**2 / total
            except FactorizationError:
                found[place] = -math.inf
        return found[place]

    best, step = max(first, key=score), 2
    while step and score(best) >= least:
        a, b = best
        steps = ((step, 0), (-step, 0), (0, step), (0, -step), (step, step))
        around = [(a + i, b + j) for i, j in steps if SHORTEST <= a + i <= LONGEST and LOWEST <= b + j <= HIGHEST]
        top = max(around, key=score)
        if score(top) > score(best) + 1e-4:
            best = top
        else:
            step -= 1
    return Start(best, score(best))


def learn(
    gp: FullGP, model: ParametricPrior, start: Learned, hyper_prior: HyperPrior, steps: int, rate: float, sharpens: bool
) -> Iterator[Learned]:
    """Maximize the leave-one-out log density, with priors; yield the state before each step and at the end."""
    total = float(gp.labels.weight.sum())
    theta, log_sharpness, adjoint = start.theta, math.log(start.sharpness), None
    adam, norms = _Adam(rate, n_rows=total), list[float]()
    no_rows, prior, ep = model.values["Z"][0, :0], model.prior(theta), start.ep
    if ep is None:
        ep = FullEP.start(gp.labels, NOISE, DTYPE).converged(covariance(prior), START_SWEEPS, DAMPING, 0.0).ep
    for step in range(steps + 1):
        q = ep.latent(covariance(prior))
        found = ep.prediction(q, math.exp(log_sharpness), adjoint)
        yield Learned(theta, math.exp(log_sharpness), found.log_density / total, ep)
        if step == steps:
            return
        by_K = torch.lerp(found.by_K, ep.log_z_by_K(q), min(EVIDENCE_ROWS / total, MOST_EVIDENCE)).to(theta.dtype)
        ep, adjoint = ep.swept(q, DAMPING), found.adjoint or None
        none = by_K.new_zeros(*by_K.shape[:2], 0)
        by = prior.bound.pull_back(prior.bound.blocks(no_rows), by_K, none, none[:, 0])
        gradient = hyper_prior.add_gradient(theta, model.join({KERNEL + n: v for n, v in by.by_params.items()}))
        by_sharpness = found.by_log_sharpness - log_sharpness / LOG_SHARPNESS_SD**2 if sharpens else 0.0
        gradient = torch.cat([gradient, gradient.new_tensor([by_sharpness])])  # Adam moves the sharpness too
        if not math.isfinite(norm := float(gradient.norm())):
            continue  # EP is far from its fixed point: another sweep first
        norms.append(norm)
        gradient = gradient * min(1.0, 2.0 * median(norms[-CLIP_STEPS:]) / max(norms[-1], 1e-30))
        moved = adam.step(torch.cat([theta, theta.new_tensor([log_sharpness])]), gradient, step / steps)
        theta, log_sharpness = moved[:-1], float(moved[-1])
        prior = model.prior(theta)


@dataclass
class Search:
    """The search for the best full Gaussian process.

    Args:
        rows: all training rows.
        n_classes: C.
        kernels: names of the kernels whose sum is the prior covariance; all but the first such sum are tried with the
            best encoding only.
        sharpens: whether the sharpness is learned too.
        seed: of the rows that the search uses.
        device: of all tensors.
        clock: says when to stop.
        history: receives a record for each step, and an event for each candidate.
        workers: all make the same search; the first one decides.
        epochs: steps so far.
        is_cut: whether the clock has ended learning early.
    """

    rows: TrainingRows
    n_classes: int
    kernels: Sequence[Sequence[str]]
    sharpens: bool
    seed: int
    device: torch.device
    clock: Clock
    history: History
    workers: Workers = SINGLE_PROCESS
    epochs: int = 0
    is_cut: bool = False

    def run(self, candidates: Iterable[tuple[str | None, Encoding]]) -> Found:
        """Learn on some rows, continue the best candidate on all of them, and return its q(f) there."""
        best = self.choose(candidates)
        gp = self._on(self.rows, best.choice, torch.float64)
        model = gp.model(best.choice.unit, VARIANCE)
        learned = best.learned._replace(theta=best.learned.theta.to(torch.float64))
        some = self._draw(LEARN_ROWS, LEARN_WORK)
        if len(some) < len(self.rows.y):
            learned = learned._replace(ep=self._extend(gp, model, learned, some))
            steps = int(min(FINAL_STEPS, FINAL_WORK / (self.n_classes * float(gp.labels.n_inputs) ** 3)))
            if steps:
                last = self._begin(gp, model, learned, best.choice, steps, FINAL_RATE)
                self._advance(last, steps)
                learned = last.learned
        return self._infer(gp, model, best.choice.encoding, learned)

    def choose(self, candidates: Iterable[tuple[str | None, Encoding]]) -> Candidate:
        """Learn the candidates, encodings with the names of their scalings, on some rows; return the best one.

        Those that start far behind are dropped at once, and after a few steps only the best one is kept. Few rows do
        not tell kernels apart, and columns of one kind, such as pixels, have no thresholds: there, only the first
        kernels are tried.
        """
        few, some = self._draw(START_ROWS, START_WORK), self._draw(LEARN_ROWS, LEARN_WORK)
        best = min(self._try_all(self._choices(candidates, few), some), key=lambda candidate: candidate.loss)
        has_thresholds = len(self.rows.y) >= THRESHOLD_ROWS and best.choice.scaling != "common"
        if has_thresholds and not self._is_over():
            known = best.choice
            least = (1.0 + BEHIND) * known.start.score
            others = (self._choice(*known[:2], k, few, [known.start.place], least) for k in self.kernels[1:])
            tried = self._try_all((other for other in others if self._is_near(other, least, few)), some)
            best = min([best, *tried], key=lambda candidate: candidate.loss)
        self._advance(best, STEPS)
        return best

    def _choices(self, candidates: Iterable[tuple[str | None, Encoding]], few: Indices) -> Iterator[Choice]:
        """Yield those whose best start on few rows is not far behind that of the best one, the best first."""
        found, first, least = list[Choice](), list(FIRST), -math.inf
        for scaling, encoding in candidates:
            if found and self._is_over():
                break
            found.append(self._choice(scaling, encoding, self.kernels[0], few, first, least))
            start = found[-1].start
            first, least = [start.place], max(least, (1.0 + HOPELESS) * start.score)
        found.sort(key=lambda choice: -choice.start.score)
        worst = (1.0 + BEHIND) * found[0].start.score
        yield from (choice for choice in found if self._is_near(choice, worst, few))

    def _choice(
        self,
        scaling: str | None,
        encoding: Encoding,
        kernels: Sequence[str],
        few: Indices,
        first: Sequence[tuple[int, int]],
        least: float,
    ) -> Choice:
        """Return a candidate with its best start on few rows (see `find_start`)."""
        gp = FullGP.on_rows(self.rows.take(few), encoding, self.n_classes, kernels, self.device, DTYPE)
        unit = gp.distance(self.seed)
        return Choice(scaling, encoding, kernels, unit, self.workers.broadcast(find_start(gp, unit, first, least)))

    def _is_near(self, choice: Choice, least: float, few: Indices) -> bool:
        """Whether a candidate starts with at least this score; note those that do not."""
        if choice.start.score < least:
            self._note_candidate(choice, len(few), choice.start.score)
        return choice.start.score >= least

    def _try_all(self, choices: Iterable[Choice], some: Indices) -> list[Candidate]:
        """Learn candidates for a few steps, while the clock allows."""
        tried = list[Candidate]()
        for choice in choices:
            if self.epochs and self._is_over():
                break
            gp = self._on(self.rows.take(some), choice, DTYPE)
            model = gp.model(*choice.start.values(choice.unit))
            candidate = self._begin(gp, model, Learned(model.start()), choice, STEPS, RATE)
            self._advance(candidate, TRIAL_STEPS, is_trial=True)
            self._note_candidate(choice, len(some), candidate.learned.score)
            tried.append(candidate)
        return tried

    def _draw(self, count: int, work: float) -> Indices:
        return some_rows(self.rows.y, min(count, int((work / self.n_classes) ** (1 / 3))), self.seed)

    def _extend(self, gp: FullGP, model: ParametricPrior, learned: Learned, some: Indices) -> FullEP:
        """Return EP on all rows, from EP on some of them: the others begin with what these predict."""
        ep = FullEP.start(gp.labels, NOISE, DTYPE)
        if learned.ep is not None:
            at = torch.from_numpy(some).to(self.device)
            sites = (x.index_copy(-1, at, known) for x, known in zip(ep.sites, learned.ep.sites, strict=True))
            ep = replace(ep, sites=Site(*sites))
        return ep.swept(ep.latent(covariance(model.prior(learned.theta))), 1.0)

    def _begin(
        self, gp: FullGP, model: ParametricPrior, start: Learned, choice: Choice, steps: int, rate: float
    ) -> Candidate:
        """Return the candidate before its first step from `start`."""
        alike = {"relevance": COMMON_RELEVANCE} if choice.scaling == "common" else {}
        hyper_prior = HyperPrior(gp.model(choice.unit, VARIANCE), {**PRIORS, **alike})
        states = learn(gp, model, start, hyper_prior, steps, rate, self.sharpens)
        return Candidate(choice, model, states, next(states))

    def _advance(self, candidate: Candidate, steps: int, is_trial: bool = False) -> None:
        """Make the steps that the clock allows, but the very first one in any case; end where one fails."""
        now, least = candidate.learned, 0 if self.epochs else 1
        with suppress(FactorizationError):
            for i, now in enumerate(islice(candidate.states, least if self._is_over() else steps), start=1):
                self.epochs += 1
                self._note(None, None if is_trial else now.score * float(self.rows.weight.sum()))
                if i < steps and self._is_over():
                    break
        broadcast = self.workers.broadcast
        candidate.learned = now._replace(theta=broadcast(now.theta), score=broadcast(now.score))

    def _is_over(self) -> bool:
        self.is_cut = self.is_cut or self.clock.is_over()
        return self.is_cut

    def _on(self, rows: TrainingRows, choice: Choice, dtype: torch.dtype) -> FullGP:
        return FullGP.on_rows(rows, choice.encoding, self.n_classes, choice.kernels, self.device, dtype)

    def _infer(self, gp: FullGP, model: ParametricPrior, encoding: Encoding, learned: Learned) -> Found:
        """Return q(f) at fixed hyper-parameters."""
        K, theta = covariance(model.prior(learned.theta)), learned.theta
        ep = FullEP.start(gp.labels, NOISE, DTYPE) if learned.ep is None else learned.ep
        ep = ep.converged(K, COARSE_SWEEPS, FINAL_DAMPING, COARSE_TOL).ep
        ep, sweeps, change = replace(ep, dtype=torch.float64).converged(K, FINAL_SWEEPS, FINAL_DAMPING, FINAL_TOL)
        if change >= FINAL_TOL:
            self._note(Event.NOT_CONVERGED, method="EP", sweeps=sweeps, change=change, tol=FINAL_TOL)
        return Found(encoding, model, theta, ep, ep.latent(K), self.epochs)

    def _note_candidate(self, choice: Choice, rows: int, score: float) -> None:
        kernel = " + ".join(choice.kernels)
        self._note(Event.CANDIDATE, scaling=str(choice.scaling), kernel=kernel, rows=rows, nll=-score)

    def _note(self, event: Event | None, objective: float | None = None, **fields: Any) -> None:
        record = {"epoch": self.epochs, "objective": objective, "seconds": self.clock.seconds(), "rate": RATE}
        self.history.add(**record, damping=DAMPING, event=event, **fields)
