"""EP with every distinct input as an inducing point, where u = f: a full Gaussian process.

The sites act on f itself, so a sweep takes one factorization of B = I + S^½ K S^½ for each class and no product with
the rows (S: the sites' precisions). The leave-one-out probability of each label comes with it: q without the sites of
that row. Its sum over rows is an objective for the hyper-parameters that rewards good predictions, where log Z rewards
a good explanation of all rows. Its gradient takes the implicit dependence of the sites on K into account.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.gp.sites import (
    Site,
    both,
    cavity,
    collect,
    count_left_out,
    damped,
    live_weight,
    log_site_scale,
    new_site,
    tilted,
)
from cavity.numerics.limits import tiny
from cavity.numerics.linalg import add_to_diagonal_, cholesky, vector_times
from cavity.numerics.quadrature import win_probability

PATIENCE, SETTLING = 8, 0.9  # sweeps without a change below this part of the least one, after which damping is halved
ADJOINT_STEPS, ADJOINT_TOL, ADJOINT_DAMPING = 14, 0.03, 0.5  # of the implicit part of the gradient


class Labels(NamedTuple):
    """Labels at distinct inputs; one input can have several rows, with different labels.

    Attributes:
        input: the input of each row.
        own: the class of each row.
        weight: of each row; a row of weight w counts as w copies of it.
        n_inputs: number of distinct inputs.
    """

    input: Int[Tensor, "N"]
    own: Bool[Tensor, "C N"]
    weight: Float[Tensor, "N"]
    n_inputs: int

    def at_inputs(self, x: Float[Tensor, "C N"]) -> Float[Tensor, "C n"]:
        """Sum over the rows of each input."""
        return x.new_zeros(len(x), self.n_inputs).index_add_(1, self.input, x)


class Latent(NamedTuple):
    """q(f) at the inputs: its marginals, and what gradients need.

    Attributes:
        mean, var: of f.
        tau, nu: precision and precision times mean of all sites of each input.
        pull: K⁻¹ times the mean.
        root: √τ.
        inverse: B⁻¹.
        log_det: log |B|.
        prior_var: k(x, x).
    """

    mean: Float[Tensor, "C n"]
    var: Float[Tensor, "C n"]
    tau: Float[Tensor, "C n"]
    nu: Float[Tensor, "C n"]
    pull: Float[Tensor, "C n"]
    root: Float[Tensor, "C n"]
    inverse: Float[Tensor, "C n n"]
    log_det: Float[Tensor, "C"]
    prior_var: Float[Tensor, "C n"]


class Prediction(NamedTuple):
    """The leave-one-out log density of all labels, its gradients by K and by log sharpness, and the sites' adjoint."""

    log_density: float
    by_K: Float[Tensor, "C n n"]
    by_log_sharpness: float
    adjoint: list[Tensor]


class Converged(NamedTuple):
    """EP after a number of sweeps; without damping, the last would have changed the sites by `change`."""

    ep: FullEP
    sweeps: int
    change: float


@dataclass(frozen=True)
class FullEP:
    """Parallel EP on f at all inputs.

    Args:
        labels: what was observed.
        noise: latent noise variance of every class, which the sites do not see.
        sites: one for each factor.
        dtype: of the factorization.
    """

    labels: Labels
    noise: float
    sites: Site
    dtype: torch.dtype = torch.float64

    @classmethod
    def start(cls, labels: Labels, noise: float, dtype: torch.dtype = torch.float64) -> FullEP:
        """Return EP without sites: q is the prior."""
        zeros = labels.weight.new_zeros(2, *labels.own.shape)
        return cls(labels, noise, Site(zeros, zeros), dtype)

    def latent(self, K: Float[Tensor, "_ n n"]) -> Latent:
        """Return q(f) for prior covariances K: Σ = S⁻½ (I − B⁻¹) S⁻½."""
        tau, nu = (self.labels.at_inputs(collect(x, self.labels.own) * self.labels.weight) for x in self.sites)
        prior_var = K.diagonal(dim1=-2, dim2=-1).expand_as(tau)
        least = torch.finfo(self.dtype).eps ** 0.7
        tau = torch.maximum(tau, least / prior_var)  # Σ is the difference of two numbers over τ
        root = tau.sqrt()
        B = (K.to(self.dtype) * root.to(self.dtype)[:, :, None]).mul_(root.to(self.dtype)[:, None, :])
        L = cholesky(add_to_diagonal_(B, 1.0))
        inverse = torch.cholesky_inverse(L)
        var = (1.0 - inverse.diagonal(dim1=-2, dim2=-1).to(tau.dtype)) / tau
        var = torch.minimum(torch.maximum(var, least * prior_var), prior_var)
        x = _times(inverse, nu / root)  # K⁻¹m = S^½ B⁻¹ S^-½ ν: no difference of large numbers
        x += _times(inverse, nu / root - x - root * _times(K, root * x))  # one step of refinement
        pull = root * x
        log_det = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1).to(tau.dtype)
        return Latent(_times(K, pull), var, tau, nu, pull, root, inverse, log_det, prior_var)

    def swept(self, q: Latent, damping: float) -> FullEP:
        """Return EP with every site refined once, all at the same time."""
        cavities = cavity(*self._moments(q.mean, q.var), self.sites)
        new = new_site(tilted(cavities, self.noise), cavities)
        return replace(self, sites=damped(self.sites, new, damping, live_weight(cavities, self._weight) > 0))

    def change_from(self, other: FullEP) -> float:
        """Return how far the precisions of the sites are from those of another state, relative to the largest."""
        here, there = self.sites.precision, other.sites.precision
        return float((here - there).abs().max() / here.abs().max().clamp_min(tiny(here)))

    def converged(self, K: Float[Tensor, "_ n n"], sweeps: int, damping: float, tol: float) -> Converged:
        """Sweep until the sites change by less than `tol`; sweeps that do not settle get smaller updates."""
        now, change, least, waited, i = self, math.inf, math.inf, 0, 0
        while i < sweeps and change >= tol:
            before, now, i = now, now.swept(now.latent(K), damping), i + 1
            change = now.change_from(before) / damping
            least, waited = (change, 0) if change < SETTLING * least else (least, waited + 1)
            if waited == PATIENCE:
                damping, least, waited = 0.5 * damping, math.inf, 0
        return Converged(now, i, change)

    def log_z(self, q: Latent) -> tuple[float, int]:
        """Return log Z_q (eq. 9), and how many factors it leaves out because their cavities are improper."""
        mean, var = self._moments(q.mean, q.var)
        cavities = cavity(mean, var, self.sites)
        weight = live_weight(cavities, self._weight)
        of_rows = (weight * log_site_scale(mean, var, self.sites, cavities, tilted(cavities, self.noise))).sum()
        left_out = int(count_left_out(cavities, self._weight))
        return float(of_rows + 0.5 * (q.nu * q.mean).sum() - 0.5 * q.log_det.sum()), left_out

    def log_z_by_K(self, q: Latent) -> Float[Tensor, "C n n"]:
        """Return the gradient of log Z_q by K: ½ (K⁻¹m mᵀK⁻¹ − (K + S⁻¹)⁻¹), where EP has converged (eq. 10)."""
        pull, root = q.pull.to(self.dtype), q.root.to(self.dtype)
        return _outer(pull).addcmul_(_outer(root), q.inverse, value=-1.0).mul_(0.5)

    def left_out(self, q: Latent) -> tuple[Float[Tensor, "C N"], Float[Tensor, "C N"]]:
        """Return mean and variance of f, noise included, at every row from the others; of copies, one is left out."""
        return self._leave_out(q.mean, q.var, self.sites, q)

    def prediction(self, q: Latent, sharpness: float, adjoint: list[Tensor] | None = None) -> Prediction:
        """Return Σ_i w_i log p(y_i | all other rows), with the means of f multiplied by the sharpness.

        K moves q(f) directly and through the sites, which satisfy sites = g(q(f), sites). The adjoint λ of the sites
        solves λ = direct + gᵀλ by the iteration that EP itself makes; each step takes products with Σ and Σ∘Σ only,
        from ∂m = Σ(∂ν − m∘∂τ) and ∂v = −(Σ∘Σ)∂τ. Then by ∂m = A ∂K K⁻¹m and ∂Σ = A ∂K Aᵀ, A = I − Σ S. A λ of
        similar hyper-parameters shortens the iteration.
        """
        own, weight = self.labels.own, self.labels.weight
        with torch.enable_grad():
            mean, var, *sites = (x.clone().requires_grad_() for x in (q.mean, q.var, *self.sites))
            site = Site(*sites)
            out = self._leave_out(mean, var, site, q)
            win = win_probability(sharpness * out[0].detach(), out[1].detach(), own)
            p = win.p.clamp_min(tiny(win.p))
            by_out = [sharpness * weight * win.by_mean / p, weight * win.by_var / p]
            by_mean, by_var, *by_sites = torch.autograd.grad(out, [mean, var, *sites], by_out)
            cavities = cavity(*self._moments(mean, var), site)
            live = live_weight(cavities, self._weight) > 0
            new = [torch.where(live, x, 0.0) for x in new_site(tilted(cavities, self.noise), cavities)]
        by_sites = [torch.where(live, x, 0.0) for x in by_sites]
        root = q.root.to(self.dtype)
        cov = (q.inverse / -root[:, :, None]).div_(root[:, None, :])
        cov.diagonal(dim1=-2, dim2=-1).copy_(q.var)
        squares = cov.square()
        on_mean, on_var = by_mean, by_var
        for _ in range(ADJOINT_STEPS):
            through = [torch.zeros_like(x) for x in by_sites]
            if adjoint is not None:
                to_mean, to_var, *through = torch.autograd.grad(new, [mean, var, *sites], adjoint, retain_graph=True)
                on_mean, on_var = by_mean + to_mean, by_var + to_var
            by_nu = _times(cov, on_mean)
            by_tau = -by_nu * q.mean - _times(squares, on_var)
            totals = (self._to_sites(x, live) for x in (by_tau, by_nu))
            target = [a + b + c for a, b, c in zip(by_sites, totals, through, strict=True)]
            before = through if adjoint is None else adjoint
            sizes = [float((a - b).norm() / a.norm().clamp_min(tiny(a))) for a, b in zip(target, before, strict=True)]
            pairs = zip(before, target, strict=True)
            adjoint = target if adjoint is None else [torch.lerp(a, b, ADJOINT_DAMPING) for a, b in pairs]
            if max(sizes) < ADJOINT_TOL:
                break
        if not max(sizes) < 1.0:  # it diverges, as EP itself does here; what remains is the gradient at fixed sites
            on_mean, on_var, adjoint = by_mean, by_var, None
        to_pull = q.root * _times(q.inverse, on_mean / q.root)
        half = torch.mul(q.inverse, root[:, None, :], out=cov)
        by_K = half.mT @ torch.mul(half, (on_var / q.tau).to(self.dtype)[:, :, None], out=squares)
        pair = torch.stack([to_pull, q.pull], -1).to(self.dtype)
        by_K = torch.baddbmm(by_K, pair, pair.flip(-1).mT, alpha=0.5)
        return Prediction(
            float((weight * p.log()).sum()), by_K, float((by_out[0] * out[0].detach()).sum()), adjoint or []
        )

    @property
    def _weight(self) -> Float[Tensor, "C N"]:
        return torch.where(self.labels.own, 0.0, self.labels.weight)

    def _moments(self, mean: Float[Tensor, "C n"], var: Float[Tensor, "C n"]) -> tuple[Tensor, Tensor]:
        """Return mean and variance of f that each factor sees, of the class of its row and of the other class."""
        of_mean, of_var = both(self.labels.own, mean[:, self.labels.input], var[:, self.labels.input])
        return of_mean, of_var

    def _leave_out(self, mean: Tensor, var: Tensor, sites: Site, q: Latent) -> tuple[Tensor, Tensor]:
        place = self.labels.input
        mean, var = mean[:, place], var[:, place]
        tau, nu = (collect(x, self.labels.own) for x in sites)
        d = torch.maximum(1.0 - tau * var, (q.var / q.prior_var)[:, place])  # no variance exceeds that of the prior
        return (mean - nu * var) / d, var / d + self.noise

    def _to_sites(self, x: Float[Tensor, "C n"], live: Bool[Tensor, "C N"]) -> Float[Tensor, "2 C N"]:
        """Return the adjoint of summing sites: what each factor's sites get of a derivative by their totals."""
        (found,) = both(self.labels.own, x[:, self.labels.input] * self.labels.weight)
        return torch.where(live, found, 0.0)


def _times(A: Float[Tensor, "#C n n"], x: Float[Tensor, "C n"]) -> Float[Tensor, "C n"]:
    """Return A x for symmetric A: xᵀA takes a tenth of the time."""
    x, dtype = x.to(A.dtype), x.dtype
    return (x @ A[0] if len(A) == 1 else vector_times(x, A)).to(dtype)


def _outer(x: Float[Tensor, "C n"]) -> Float[Tensor, "C n n"]:
    return x[:, :, None] * x[:, None, :]
