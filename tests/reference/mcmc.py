"""Long elliptical slice sampling runs on a small problem: the posterior that EP approximates, by brute force.

    python -m tests.reference.mcmc

samples the inducing values u, u^k ~ N(0, K_k), under two likelihoods and writes data/mcmc_small.npz.

    pairwise   (7): Π_{k≠y_i} Φ(α_i^k), the approximation of the factor which EP targets
    exact      (3): ∫ N(f|m^{y_i},s^{y_i}) Π_{k≠y_i} Φ((f − m^k)/√s^k) df, by quadrature

Predictions average P(class k wins | u) over the samples.

    python -m tests.reference.mcmc full

samples the full model on the same rows, without inducing points: f^k ~ N(0, k(X, X)), likelihood (3) with the noise
alone as s. It writes data/mcmc_full.npz: probabilities, and the uncertainty of the label with its two parts, where
"known" means that the noise-free f at the new row is known.
Elliptical slice sampling: Murray, Adams & MacKay (2010), arXiv:1001.0175.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr, ndtr

from . import oracle

DATA = Path(__file__).parent / "data"
CHAINS, BURN_IN, KEPT, THIN = 8, 2000, 5000, 20
NODES = np.linspace(-7, 7, 51)  # trapezium rule, in standard deviations: 1e-8 for variances within a factor of 20
NODE_WEIGHTS = (NODES[1] - NODES[0]) * np.exp(-0.5 * NODES**2) / np.sqrt(2 * np.pi)


def problem():
    """Three overlapping clouds in the plane, 20 rows each, and 200 points scattered over and around them."""
    rng = np.random.default_rng(20170706)
    y = np.repeat(np.arange(3), 20)
    X = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.2]])[y] + 0.8 * rng.standard_normal((60, 2))
    return {
        "X": X,
        "y": y,
        "Z": np.array([X[rng.choice(60, 10, replace=False)] for _ in range(3)]),
        "lengthscale": np.array([[1.0, 1.3], [1.2, 1.0], [1.5, 1.1]]),
        "variance": np.array([1.5, 2.0, 2.5]),
        "noise": np.array([0.1, 0.15, 0.2]),
        "X_new": rng.uniform([-2.5, -2.5], [2.5, 3.0], (200, 2)),
    }


def hyper(p):
    return p["Z"], p["lengthscale"], p["variance"], p["noise"]


def win(m, s, k):
    """P(f^k > all others), f^j ~ N(m^j, s^j): m (S,C,N), s (C,N), the class k of each row (N) → (S,N)."""
    row = np.arange(m.shape[2])
    f = m[:, k, row, None] + np.sqrt(s[k, row])[:, None] * NODES
    product = NODE_WEIGHTS
    for shift in range(1, m.shape[1]):
        j = (k + shift) % m.shape[1]
        product = product * ndtr((f - m[:, j, row, None]) / np.sqrt(s[j, row])[:, None])
    return product.sum(axis=2)


def log_likelihood_exact(m, s, y):
    """(3), summed over the rows: (S,)."""
    return np.log(win(m, s, y)).sum(axis=1)


def log_likelihood_pairwise(m, s, y):
    """(7), summed over the rows: (S,)."""
    row, C = np.arange(len(y)), m.shape[1]
    total = 0.0
    for shift in range(1, C):
        k = (y + shift) % C
        total = total + log_ndtr((m[:, y, row] - m[:, k, row]) / np.sqrt(s[y, row] + s[k, row])).sum(axis=1)
    return total


def win_probabilities(m, s):
    """P(class k wins) for all classes: (S,N,C)."""
    C, N = s.shape
    return np.stack([win(m, s, np.full(N, k)) for k in range(C)], axis=2)


def project(W, x):
    """m^k_i = υ_iᵀu^k = W^k_i · x^k with u^k = L_k x^k: W (C,N,M), x (S,C,M) → (S,C,N)."""
    return np.matmul(W, x[:, :, :, None])[:, :, :, 0]


def sample(log_likelihood, shape, rng, chains=CHAINS, burn_in=BURN_IN, kept=KEPT, thin=THIN):
    """Chains of every thin-th state x ~ N(0, I) × likelihood after the burn-in: (chains, kept, C, M)."""
    x = rng.standard_normal((chains, *shape))
    current, states = log_likelihood(x), []
    for iteration in range(burn_in + kept * thin):
        nu = rng.standard_normal(x.shape)
        level = current + np.log(rng.uniform(size=chains))
        angle = rng.uniform(0, 2 * np.pi, chains)
        low, high = angle - 2 * np.pi, angle.copy()
        proposal, proposed, below = x, current.copy(), np.full(chains, True)
        while below.any():  # shrink the brackets of the chains whose proposal lies below their level
            proposal = x * np.cos(angle)[:, None, None] + nu * np.sin(angle)[:, None, None]
            proposed[below] = log_likelihood(proposal[below])
            below = proposed <= level
            low, high = np.where(below & (angle < 0), angle, low), np.where(below & (angle >= 0), angle, high)
            angle = np.where(below, rng.uniform(low, high), angle)
        x, current = proposal, proposed
        if iteration >= burn_in and (iteration - burn_in) % thin == thin - 1:
            states.append(x)
    return np.stack(states, axis=1)


def split_r_hat(v):
    """Split-R̂ (Gelman et al., Bayesian Data Analysis, 3rd ed., 11.4) of v (chains, draws, ...)."""
    half = v.shape[1] // 2
    v = np.concatenate([v[:, :half], v[:, half : 2 * half]])
    within, between = v.var(axis=1, ddof=1).mean(axis=0), v.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((half - 1) / half + between / within)


def standard_error(v, batches=25):
    """Of the mean over chains and draws, from the scatter of batch means (v's draws in 25 runs per chain)."""
    means = v.reshape(len(v) * batches, -1, *v.shape[2:]).mean(axis=1)
    return means.std(axis=0, ddof=1) / np.sqrt(len(means))


def log_evidence(log_likelihood, x, rng, draws=200_000, inflation=1.2):
    """log ∫ N(x|0,I) likelihood(x) dx and its standard error, by importance sampling from the Gaussian with
    the mean and the inflated joint covariance of the samples x (chains, draws, C, M).
    """
    flat = x.reshape(-1, x.shape[2] * x.shape[3])
    mean, root = flat.mean(axis=0), np.linalg.cholesky(inflation * np.cov(flat.T))
    log_ratio = []
    for _ in range(draws // 1000):
        e = rng.standard_normal((1000, len(mean)))
        proposal = mean + e @ root.T
        prior_minus_proposal = 0.5 * (e**2 - proposal**2).sum(axis=1) + np.log(np.diagonal(root)).sum()
        log_ratio.append(prior_minus_proposal + log_likelihood(proposal.reshape(1000, *x.shape[2:])))
    log_ratio = np.concatenate(log_ratio)
    ratio = np.exp(log_ratio - log_ratio.max())
    return np.array([log_ratio.max() + np.log(ratio.mean()), ratio.std() / ratio.mean() / np.sqrt(draws)])


def run(p, likelihood, seed):
    """Everything that is stored about one target."""
    rng = np.random.default_rng(seed)
    K, upsilon, s = oracle.prior(p["X"], *hyper(p))
    _, upsilon_new, s_new = oracle.prior(p["X_new"], *hyper(p))
    L = np.linalg.cholesky(K)
    W, W_new = upsilon @ L, upsilon_new @ L

    def log_likelihood(x):
        return likelihood(project(W, x), s, p["y"])

    x = sample(log_likelihood, p["Z"].shape[:2], rng)
    prob = np.array([[win_probabilities(project(W_new, part), s_new) for part in np.split(c, 100)] for c in x])
    prob = prob.reshape(*x.shape[:2], *prob.shape[3:])
    u = np.einsum("kml,cskl->cskm", L, x)
    watched = np.concatenate([v.reshape(*x.shape[:2], -1) for v in (prob, u)], axis=2)
    error = standard_error(watched)
    return {
        "prob": prob.mean(axis=(0, 1)),
        "prob_se": standard_error(prob),
        "u_mean": u.mean(axis=(0, 1)),
        "u_mean_se": standard_error(u),
        "u_var": u.var(axis=(0, 1)),
        "r_hat_max": split_r_hat(watched).max(),
        "ess_min": (watched.var(axis=(0, 1)) / error**2).min(),
        "log_evidence": log_evidence(log_likelihood, x, rng),
    }


def run_full(p, seed=3, kept=4000, thin=10):
    """What is stored about the full model."""
    rng = np.random.default_rng(seed)
    C, N, n_new = len(p["noise"]), len(p["X"]), len(p["X_new"])
    K = [oracle.kernel(p["X"], p["X"], *h) for h in zip(p["lengthscale"], p["variance"], strict=True)]
    L = np.linalg.cholesky(np.stack(K) + 1e-8 * np.eye(N))
    cross = [oracle.kernel(p["X"], p["X_new"], *h) for h in zip(p["lengthscale"], p["variance"], strict=True)]
    W = np.linalg.solve(L, np.stack(cross)).swapaxes(1, 2)  # (C, n_new, N)
    spread = np.sqrt(np.maximum(p["variance"][:, None] - (W**2).sum(2), 0))
    s, s_new = (np.repeat(p["noise"][:, None], n, 1) for n in (N, n_new))
    x = sample(lambda x: log_likelihood_exact(project(L, x), s, p["y"]), (C, N), rng, kept=kept, thin=thin)
    prob, entropy = np.empty((*x.shape[:2], n_new, C)), np.empty((*x.shape[:2], n_new))
    for chain, states in enumerate(x):
        for rows in np.split(np.arange(kept), kept // 50):
            f = project(W, states[rows]) + spread * rng.standard_normal((len(rows), C, n_new))
            prob[chain, rows] = known = np.maximum(win_probabilities(f, s_new), 1e-300)
            entropy[chain, rows] = -(known * np.log(known)).sum(2)
    mean = prob.mean(axis=(0, 1))
    total, aleatoric = -(mean * np.log(mean)).sum(1), entropy.mean(axis=(0, 1))
    return {
        "prob": mean,
        "prob_se": standard_error(prob),
        "aleatoric": aleatoric,
        "aleatoric_se": standard_error(entropy),
        "epistemic": total - aleatoric,
        "r_hat_max": max(split_r_hat(prob).max(), split_r_hat(entropy).max()),
    }


def main_full():
    p = problem()
    r = run_full(p)
    print(f"R̂ ≤ {r['r_hat_max']:.4f}, s.e. ≤ {r['prob_se'].max():.5f} and {r['aleatoric_se'].max():.5f}")
    if r["r_hat_max"] >= 1.02:
        raise RuntimeError("run longer")
    np.savez_compressed(DATA / "mcmc_full.npz", **p, **r)


def main():
    p = problem()
    q = oracle.ep_fixed_point(p["X"], p["y"], *hyper(p))
    ep_prob = np.exp(oracle.predict_log_proba(q, p["X_new"], *hyper(p)))
    stored = dict(p)
    print(f"EP: log Z {q.log_z:.4f}")
    for name, likelihood, seed in (
        ("pairwise", log_likelihood_pairwise, 1),
        ("exact", log_likelihood_exact, 2),
    ):
        r = run(p, likelihood, seed)
        if r["r_hat_max"] >= 1.01:
            raise RuntimeError(f"{name}: split-R̂ {r['r_hat_max']:.4f}, run longer")
        stored |= {f"{name}_{key}": value for key, value in r.items()}
        difference = np.abs(ep_prob - r["prob"])
        print(f"{name}: R̂ ≤ {r['r_hat_max']:.4f}, ESS ≥ {r['ess_min']:.0f}, s.e. ≤ {r['prob_se'].max():.5f}")
        print(f"  log evidence {r['log_evidence'][0]:.4f} ± {r['log_evidence'][1]:.4f}")
        print(f"  EP − MCMC: mean |Δp| {difference.mean():.4f}, max {difference.max():.4f}")
    np.savez_compressed(DATA / "mcmc_small.npz", **stored)


if __name__ == "__main__":
    main_full() if sys.argv[1:] == ["full"] else main()
