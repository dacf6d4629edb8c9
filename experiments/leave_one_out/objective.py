"""SEP that learns its hyper-parameters by leave-one-out predictions, alone or mixed with log Z_q.

EP keeps a site for every row, so q without the sites of a row predicts its label as if the row had not been there. SEP
keeps the product of all sites only. There are two ways to leave a row out:

- "average": q without as many average sites as the row has factors of each class. This is SEP's own cavity.
- "own": q without the sites that the row's factors would get now, as SEP computes them in an update. Their sum over
  rows is the product of all sites where SEP has converged.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cavity.gp.gaussian import Natural, Whitened
from cavity.gp.gradients import Gradient, RowDerivatives, rows_gradient
from cavity.gp.prior import Conditional, Prior
from cavity.gp.sites import Cavity, both, collect, new_site, tilted
from cavity.inference import SEP, Batch, Objective, Terms
from cavity.inference.base import ALL_TERMS
from cavity.inference.sep import SEPState
from cavity.numerics.limits import tiny
from cavity.numerics.linalg import symmetrize
from cavity.numerics.quadrature import win_probability

AVERAGE, OWN = "average", "own"


class PredictiveSEP(SEP):
    """SEP whose objective is (1 − w) log Z_q + w Σ_i log p(y_i | all other rows).

    The gradient of the second part takes the product of the sites as fixed in u-space, as eq. (10) does.

    Args:
        alpha: must be 1.
        weight: w.
        leaves_out: "average" or "own".
    """

    def __init__(self, alpha: float = 1.0, weight: float = 1.0, leaves_out: str = OWN) -> None:
        if alpha != 1.0:
            raise ValueError(f"alpha must be 1, got {alpha}: the leave-one-out predictions are those of EP's sites")
        super().__init__(alpha)
        self.weight, self.leaves_out = weight, leaves_out

    def objective(
        self, prior: Prior, f: Conditional, state: SEPState, natural: Natural, batch: Batch, terms: Terms = ALL_TERMS
    ) -> Objective:
        """Return the objective and its gradient; without a gradient, at the end of training, log Z_q alone."""
        if not terms.gradient:
            return super().objective(prior, f, state, natural, batch, terms)
        total, gradient = self.log_density(f, state, natural, batch)
        if self.weight == 1.0:
            return Objective(total, gradient)
        evidence = super().objective(prior, f, state, natural, batch, terms)
        assert evidence.gradient is not None
        pairs = zip(evidence.gradient, gradient, strict=True)
        return Objective(
            torch.lerp(evidence.log_z, total, self.weight),
            Gradient(*(torch.lerp(of_log_z, of_density, self.weight) for of_log_z, of_density in pairs)),
        )

    def log_density(self, f: Conditional, state: SEPState, natural: Natural, batch: Batch) -> tuple[Tensor, Gradient]:
        """Return ρ Σ_i w_i log p(y_i | all other rows) over the batch, and its gradient at fixed T and t."""
        way = self._without_average if self.leaves_out == AVERAGE else self._without_own
        return way(f, state, natural, batch)

    def _without_average(
        self, f: Conditional, state: SEPState, natural: Natural, batch: Batch
    ) -> tuple[Tensor, Gradient]:
        """Remove C − 1 average sites from the class of the row, and one from every other class."""
        counts, others = state.counts.clamp_min(1.0), float(len(state.counts) - 1)
        keep = 1.0 - torch.stack([counts.clamp_max(others), torch.ones_like(counts)]) / counts
        pair = Whitened.from_sites(*natural, keep=keep)
        parts = [Whitened(R_inverse, m) for R_inverse, m in zip(pair.R_inverse, pair.m, strict=True)]
        moments = [q.project_with_covariance(f.W) for q in parts]
        mean, var = (torch.where(batch.own, moments[0][i], moments[1][i]) for i in range(2))
        total, by_mean, by_var = _log_win(mean, var + f.s, batch)
        of_parts = [
            _gradient(q, covW, f, *(torch.where(is_in, by, 0.0) for by in (by_mean, by_var, by_var)))
            for q, (_, _, covW), is_in in zip(parts, moments, (batch.own, ~batch.own), strict=True)
        ]
        return total, Gradient(*(a + b for a, b in zip(*of_parts, strict=True)))

    @torch.inference_mode(False)
    def _without_own(self, f: Conditional, state: SEPState, natural: Natural, batch: Batch) -> tuple[Tensor, Gradient]:
        """Remove the row's own sites; autograd follows them at the level of numbers per row and class."""
        q = Whitened.from_sites(*natural, keep=1.0 - state.counts.clamp_min(1.0).reciprocal())
        a, h, covW = q.project_with_covariance(f.W)
        own, prior_var = batch.own.clone(), f.W.square().sum(-2).to(h.dtype).expand_as(h).clone()
        with torch.enable_grad():
            moments = [x.clone().requires_grad_() for x in (a, h, f.s)]
            mean, var = _left_out(moments[0], moments[1], moments[2], prior_var, own)
            total, *by_left = _log_win(mean.detach(), var.detach(), batch)
            by = torch.autograd.grad([mean, var], moments, by_left)
        return total, _gradient(q, covW, f, *by)


def _left_out(
    mean: Float[Tensor, "C B"],
    var: Float[Tensor, "C B"],
    s: Float[Tensor, "C B"],
    prior_var: Float[Tensor, "C B"],
    own: Bool[Tensor, "C B"],
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of f without the sites that the row's factors would get under these moments.

    No variance exceeds that of the prior; how this bound moves with the kernel is left out of gradients.
    """
    of_mean, of_var, of_s = both(own, mean, var, s)
    cavities = Cavity(of_mean, of_var, d=mean.new_ones(()))
    sites = (torch.where(own, 0.0, x) for x in new_site(tilted(cavities, of_s), cavities))
    tau, nu = (collect(x, own) for x in sites)
    d = torch.maximum(1.0 - tau * var, (var / prior_var.clamp_min(tiny(var))).detach().clamp_max(1.0))
    return (mean - nu * var) / d, var / d + s


def _log_win(
    mean: Float[Tensor, "C B"], var: Float[Tensor, "C B"], batch: Batch
) -> tuple[Tensor, Float[Tensor, "C B"], Float[Tensor, "C B"]]:
    """Return ρ Σ_i w_i log p(y_i), and its derivatives by mean and variance of f."""
    win = win_probability(mean, var, batch.own)
    p = win.p.clamp_min(tiny(win.p))
    weight = batch.scale * batch.weight
    return (weight * p.log()).sum(), weight * win.by_mean / p, weight * win.by_var / p


def _gradient(
    q: Whitened,
    covW: Float[Tensor, "C M B"],
    f: Conditional,
    by_mean: Float[Tensor, "C B"],
    by_var: Float[Tensor, "C B"],
    by_s: Float[Tensor, "C B"],
) -> Gradient:
    """Return the gradient by the kernel blocks from that by mean υᵀm, variance and s of each row.

    At fixed T and t the covariance of q(u) moves by ΣK⁻¹ dK K⁻¹Σ and its mean by ΣK⁻¹ dK K⁻¹m; whitened, by P⁻¹E P⁻¹
    and P⁻¹E m with E = L⁻¹ dK L⁻ᵀ. `covW` is overwritten.
    """
    of_mean = torch.matmul(covW, by_mean[..., None].to(covW.dtype)).to(q.m.dtype) * q.m[:, None, :]
    of_var = torch.matmul(covW * by_var[:, None, :].to(covW.dtype), covW.mT).to(q.m.dtype)
    return rows_gradient(q, covW, f.W, RowDerivatives(by_mean, 2.0 * by_var, by_s), symmetrize(of_mean) + of_var)
