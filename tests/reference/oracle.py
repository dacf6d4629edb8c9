"""EP, SEP, GFITC and the bound of VI for multi-class GP classification in plain loops, to be checked by eye against the
paper.

Villacampa-Calvo & Hernández-Lobato (2017), arXiv:1706.07258; "(n)" is an equation of its main text, "S" its
supplement. Everything is float64 numpy in the space of the inducing values u (the paper's f̄), with explicit
inverses: slow, and only right for small, well-conditioned problems.

N rows, classes 0..C-1, M inducing inputs per class: Z (C,M,D), lengthscale (C,D), variance (C), noise (C).
The noise stands on the diagonal of K = k(Z,Z) and in κ = k(x,x), not in k(Z,x).
A row of weight w > 0 stands for w copies of it: w times its sites in q, w times its terms in log Z, and a
cavity that lacks one copy.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, logsumexp


@dataclass
class Sites:
    """EP's factors (8): entry (i,k), k ≠ y_i, of the (N,C) arrays is of φ_i^k; entries (i,y_i) are zero."""

    C1_own: np.ndarray  # C^{1,y_i}_{i,k}, precision along υ_i^{y_i}
    C2_own: np.ndarray  # C^{2,y_i}_{i,k}, precision × mean along υ_i^{y_i}
    C1_other: np.ndarray  # C^1_{i,k}, precision along υ_i^k
    C2_other: np.ndarray  # C^2_{i,k}
    upsilon: np.ndarray | None  # (C,N,M): the υ along which the sites lie; None: they lie on f itself (GFITC)


@dataclass
class TiedSites:
    """SEP's product of all factors, class by class: precision T (C,M,M) and precision × mean t (C,M)."""

    T: np.ndarray
    t: np.ndarray


@dataclass
class Result:
    sites: Sites | TiedSites
    mean: np.ndarray  # (C,M), the mean of q(u)
    cov: np.ndarray  # (C,M,M)
    log_z: float
    sweeps: int
    converged: bool


def kernel(A, B, lengthscale, variance):
    """variance · exp(−½ Σ_d (a_d − b_d)² / lengthscale_d²)."""
    difference = (A[:, None, :] - B[None, :, :]) / lengthscale
    return variance * np.exp(-0.5 * np.sum(difference**2, axis=2))


def prior(X, Z, lengthscale, variance, noise):
    """K (C,M,M); υ_i = K⁻¹ k(Z,x_i), (C,N,M); s_i = κ_i − k(x_i,Z) υ_i of (5), (C,N)."""
    C, M, _ = Z.shape
    K, upsilon, s = np.empty((C, M, M)), np.empty((C, len(X), M)), np.empty((C, len(X)))
    for k in range(C):
        K[k] = kernel(Z[k], Z[k], lengthscale[k], variance[k]) + noise[k] * np.eye(M)
        k_xz = kernel(X, Z[k], lengthscale[k], variance[k])
        upsilon[k] = np.linalg.solve(K[k], k_xz.T).T
        s[k] = variance[k] + noise[k] - np.sum(k_xz * upsilon[k], axis=1)
    return K, upsilon, s


def factors(y, C):
    """(i, y_i, k) of every likelihood factor φ_i^k = Φ(α_i^k), k ≠ y_i, of (7)."""
    return [(i, yi, k) for i, yi in enumerate(y) for k in range(C) if k != yi]


def ones_if_none(weights, X):
    return np.ones(len(X)) if weights is None else np.asarray(weights, float)


# A Gaussian is the pair (Λ, η) of its precision matrix and its precision × mean.


def moments(q):
    """Means (C,M) and covariances (C,M,M) of q, a list of one Gaussian per class."""
    cov = np.array([np.linalg.inv(precision) for precision, _ in q])
    return np.array([V @ linear for V, (_, linear) in zip(cov, q, strict=True)]), cov


def g(gaussian):
    """S: the log-normalizer, D/2 log 2π + ½ log|Λ⁻¹| + ½ ηᵀΛ⁻¹η."""
    precision, linear = gaussian
    log_det = np.linalg.slogdet(precision)[1]
    return 0.5 * (len(linear) * np.log(2 * np.pi) - log_det + linear @ np.linalg.solve(precision, linear))


def project(gaussian, upsilon):
    """Mean and variance of υᵀu."""
    precision, linear = gaussian
    V_upsilon = np.linalg.solve(precision, upsilon)
    return V_upsilon @ linear, V_upsilon @ upsilon


def g_prior(K):
    return sum(g((np.linalg.inv(K_k), np.zeros(len(K_k)))) for K_k in K)


def tilt(cavity_y, cavity_k, upsilon_y, upsilon_k, s_y, s_k):
    """S: log Z_ik = log Φ(α̂), and the new (C1, C2) on class y_i and on class k."""
    a_y, h_y = project(cavity_y, upsilon_y)
    a_k, h_k = project(cavity_k, upsilon_k)
    b = s_y + h_y + s_k + h_k  # b_i^{y_i} + b_i^k
    alpha = (a_y - a_k) / np.sqrt(b)
    log_z = log_ndtr(alpha)
    beta = np.exp(-0.5 * alpha**2 - 0.5 * np.log(2 * np.pi) - log_z)  # N(α̂|0,1) / Φ(α̂)
    curvature = (beta**2 + beta * alpha) / b
    halves = []
    # ∂ log Z/∂m = +β/√b υ on class y_i, −β/√b υ on class k: C² of class k in the supplement lacks this minus.
    for a, h, slope in ((a_y, h_y, beta / np.sqrt(b)), (a_k, h_k, -beta / np.sqrt(b))):
        C1 = curvature / (1 - curvature * h)  # (1/curvature − υᵀV∖υ)⁻¹
        halves.append((C1, slope + C1 * a + slope * C1 * h))
    return log_z, *halves


# --- EP ---


def ep_q(K, y, sites, w):
    """S, reconstruction of q: per class Λ = K⁻¹ + ΥΔΥᵀ and η = Υμ̃."""
    precision, linear = np.linalg.inv(K), np.zeros(K.shape[:2])
    for i, yi, k in factors(y, len(K)):
        own, other = sites.upsilon[yi, i], sites.upsilon[k, i]
        precision[yi] += w[i] * sites.C1_own[i, k] * np.outer(own, own)
        precision[k] += w[i] * sites.C1_other[i, k] * np.outer(other, other)
        linear[yi] += w[i] * sites.C2_own[i, k] * own
        linear[k] += w[i] * sites.C2_other[i, k] * other
    return list(zip(precision, linear, strict=True))


def ep_cavity(q, sites, i, yi, k):
    """S, cavity of φ_i^k: its classes y_i and k, Λ − C1 υυᵀ and η − C2 υ."""
    own, other = sites.upsilon[yi, i], sites.upsilon[k, i]
    cavity_y = q[yi][0] - sites.C1_own[i, k] * np.outer(own, own), q[yi][1] - sites.C2_own[i, k] * own
    cavity_k = q[k][0] - sites.C1_other[i, k] * np.outer(other, other), q[k][1] - sites.C2_other[i, k] * other
    return cavity_y, cavity_k


def ep_fixed_point(
    X, y, Z, lengthscale, variance, noise, damping=0.5, tol=1e-12, max_sweeps=2000, weights=None, start=None
):
    """Parallel damped EP until no site would move by more than tol (1 + |site|), or max_sweeps are done."""
    K, upsilon, s = prior(X, Z, lengthscale, variance, noise)
    w, old = ones_if_none(weights, X), np.zeros((4, len(X), len(Z)))
    if start is not None:
        old = np.array([start.C1_own, start.C2_own, start.C1_other, start.C2_other])
    sweeps, converged = 0, False
    while sweeps < max_sweeps and not converged:
        sites, new = Sites(*old, upsilon), old.copy()
        q = ep_q(K, y, sites, w)
        _, V = moments(q)
        for i, yi, k in factors(y, len(Z)):
            h_y, h_k = upsilon[yi, i] @ V[yi] @ upsilon[yi, i], upsilon[k, i] @ V[k] @ upsilon[k, i]
            if sites.C1_own[i, k] * h_y < 1 and sites.C1_other[i, k] * h_k < 1:  # else improper: not updated
                cavity = ep_cavity(q, sites, i, yi, k)
                _, own, other = tilt(*cavity, upsilon[yi, i], upsilon[k, i], s[yi, i], s[k, i])
                new[:, i, k] = *own, *other
        converged = bool(np.all(np.abs(new - old) <= tol * (1 + np.abs(old))))
        old = damping * new + (1 - damping) * old
        sweeps += 1
    sites = Sites(*old, upsilon)
    q = ep_q(K, y, sites, w)
    return Result(sites, *moments(q), ep_log_z(K, upsilon, s, y, sites, w), sweeps, converged)


def ep_log_z(K, upsilon, s, y, sites, w):
    """(9): g(θ) − g(θ_prior) + Σ_ik log s̃_ik, log s̃_ik = log Z_ik + g(θ∖ik) − g(θ), for any sites."""
    q = ep_q(K, y, sites, w)
    g_q = [g(q_k) for q_k in q]
    total = sum(g_q) - g_prior(K)
    for i, yi, k in factors(y, len(K)):
        cavity_y, cavity_k = ep_cavity(q, sites, i, yi, k)
        log_z, _, _ = tilt(cavity_y, cavity_k, upsilon[yi, i], upsilon[k, i], s[yi, i], s[k, i])
        total += w[i] * (log_z + g(cavity_y) + g(cavity_k) - g_q[yi] - g_q[k])
    return float(total)


# --- SEP: one site per class, the n_k-th root of the product standing for each factor's half ---


def sep_counts(y, C, w):
    """n_k: rows labeled k count once for each of their C − 1 factors, all other rows once."""
    return np.array([np.sum(np.where(y == k, (C - 1) * w, w)) for k in range(C)])


def sep_q(K, sites, share):
    """Per class Λ = K⁻¹ + share T and η = share t: q itself at share 1, the cavity at share 1 − 1/n_k."""
    return [
        (np.linalg.inv(K_k) + f * T_k, f * t_k) for K_k, T_k, t_k, f in zip(K, sites.T, sites.t, share, strict=True)
    ]


def sep_fixed_point(
    X, y, Z, lengthscale, variance, noise, damping=0.5, tol=1e-12, max_sweeps=5000, weights=None, start=None
):
    """Full-batch SEP: T and t are replaced, damped, by the sums of the new sites of all factors."""
    K, upsilon, s = prior(X, Z, lengthscale, variance, noise)
    w, (C, M, _) = ones_if_none(weights, X), Z.shape
    n = sep_counts(y, C, w)
    sites = TiedSites(np.zeros((C, M, M)), np.zeros((C, M))) if start is None else start
    sweeps, converged = 0, False
    while sweeps < max_sweeps and not converged:
        T, t = np.zeros((C, M, M)), np.zeros((C, M))
        cavity = sep_q(K, sites, 1 - 1 / n)
        for i, yi, k in factors(y, C):
            own, other = upsilon[yi, i], upsilon[k, i]
            _, (C1_y, C2_y), (C1_k, C2_k) = tilt(cavity[yi], cavity[k], own, other, s[yi, i], s[k, i])
            T[yi] += w[i] * C1_y * np.outer(own, own)
            t[yi] += w[i] * C2_y * own
            T[k] += w[i] * C1_k * np.outer(other, other)
            t[k] += w[i] * C2_k * other
        change = max(np.max(np.abs(T - sites.T)), np.max(np.abs(t - sites.t)))
        converged = bool(change <= tol * (1 + max(np.max(np.abs(T)), np.max(np.abs(t)))))
        sites = TiedSites(damping * T + (1 - damping) * sites.T, damping * t + (1 - damping) * sites.t)
        sweeps += 1
    q = sep_q(K, sites, np.ones(C))
    return Result(sites, *moments(q), sep_log_z(K, upsilon, s, y, sites, w), sweeps, converged)


def sep_log_z(K, upsilon, s, y, sites, w):
    """(9) with tied factors: g(θ) − g(θ_prior) + Σ_ik log Z_ik + Σ_k n_k (g(θ∖_k) − g(θ_k))."""
    C, n = len(K), sep_counts(y, len(K), w)
    q, cavity = sep_q(K, sites, np.ones(C)), sep_q(K, sites, 1 - 1 / n)
    total = sum(g(q_k) for q_k in q) - g_prior(K)
    total += sum(n[k] * (g(cavity[k]) - g(q[k])) for k in range(C))
    for i, yi, k in factors(y, C):
        total += w[i] * tilt(cavity[yi], cavity[k], upsilon[yi, i], upsilon[k, i], s[yi, i], s[k, i])[0]
    return float(total)


# --- GFITC: EP on the pairs Θ(f_i^{y_i} − f_i^k) under the FITC prior, sites on f itself ---


@dataclass
class Joint:
    """The FITC prior of one class over (u, f): f_i = υ_iᵀu plus a part of its own, of variance s_i."""

    precision: np.ndarray  # (M+N,M+N)
    upsilon: np.ndarray  # (N,M)
    s: np.ndarray  # (N)


def gfitc_prior(X, Z, lengthscale, variance, noise):
    """Per class, the inverse of [[K, k(Z,X)], [k(X,Z), Q + diag(κ − diag Q)]] with Q = k(X,Z) K⁻¹ k(Z,X)."""
    joints = []
    for K, upsilon, s in zip(*prior(X, Z, lengthscale, variance, noise), strict=True):
        cross = K @ upsilon.T
        covariance = np.block([[K, cross], [cross.T, upsilon @ cross + np.diag(s)]])
        joints.append(Joint(np.linalg.inv(covariance), upsilon, s))
    return joints


def gfitc_totals(y, sites):
    """Precision and precision × mean of all sites on f_i^k together, both (C,N)."""
    N, C = sites.C1_own.shape
    Delta, linear = np.zeros((C, N)), np.zeros((C, N))
    for i, yi, k in factors(y, C):
        Delta[yi, i] += sites.C1_own[i, k]
        linear[yi, i] += sites.C2_own[i, k]
        Delta[k, i] += sites.C1_other[i, k]
        linear[k, i] += sites.C2_other[i, k]
    return Delta, linear


def gfitc_q(joints, y, sites, w):
    """Per class the Gaussian over (u, f) where f_i is one copy of row i.

    Each of the w − 1 other copies has an f of its own, and the same sites: integrated out, it leaves a Gaussian factor
    in υ_iᵀu of precision Δ/(1 + Δs) and precision × mean ν/(1 + Δs).
    """
    q = []
    for joint, Delta, linear in zip(joints, *gfitc_totals(y, sites), strict=True):
        M = joint.upsilon.shape[1]
        precision, total = joint.precision.copy(), np.zeros(len(joint.precision))
        for i, upsilon in enumerate(joint.upsilon):
            e = 1 + Delta[i] * joint.s[i]
            precision[:M, :M] += (w[i] - 1) * Delta[i] / e * np.outer(upsilon, upsilon)
            total[:M] += (w[i] - 1) * linear[i] / e * upsilon
            precision[M + i, M + i] += Delta[i]
            total[M + i] += linear[i]
        q.append((precision, total))
    return q


def gfitc_cavities(mean, cov, sites, M, i, yi, k):
    """One-dimensional Gaussians over f_i: q and the cavity of factor (i,k) on class y_i, then both on class k."""
    halves = []
    for j, C1, C2 in ((yi, sites.C1_own, sites.C2_own), (k, sites.C1_other, sites.C2_other)):
        precision = 1 / cov[j][M + i, M + i]
        linear = precision * mean[j][M + i]
        marginal = np.array([[precision]]), np.array([linear])
        halves += [marginal, (marginal[0] - C1[i, k], marginal[1] - C2[i, k])]
    return halves


def gfitc_fixed_point(
    X, y, Z, lengthscale, variance, noise, damping=0.5, tol=1e-12, max_sweeps=2000, weights=None, start=None
):
    """Parallel damped EP until no site would move by more than tol (1 + |site|), or max_sweeps are done."""
    joints, M, one = gfitc_prior(X, Z, lengthscale, variance, noise), Z.shape[1], np.ones(1)
    w, old = ones_if_none(weights, X), np.zeros((4, len(X), len(Z)))
    if start is not None:
        old = np.array([start.C1_own, start.C2_own, start.C1_other, start.C2_other])
    sweeps, converged = 0, False
    while sweeps < max_sweeps and not converged:
        sites, new = Sites(*old, None), old.copy()
        mean, cov = moments(gfitc_q(joints, y, sites, w))
        for i, yi, k in factors(y, len(Z)):
            _, cavity_y, _, cavity_k = gfitc_cavities(mean, cov, sites, M, i, yi, k)
            if cavity_y[0] > 0 and cavity_k[0] > 0:  # else improper: not updated
                _, own, other = tilt(cavity_y, cavity_k, one, one, 0.0, 0.0)
                new[:, i, k] = *own, *other
        converged = bool(np.all(np.abs(new - old) <= tol * (1 + np.abs(old))))
        old = damping * new + (1 - damping) * old
        sweeps += 1
    sites = Sites(*old, None)
    mean, cov = moments(gfitc_q(joints, y, sites, w))
    return Result(sites, mean[:, :M], cov[:, :M, :M], gfitc_log_z(joints, y, sites, w), sweeps, converged)


def gfitc_log_z(joints, y, sites, w):
    """(9) over f: g(θ) − g(θ_prior) + Σ_ik log s̃_ik, and what the copies integrated out leave as a constant."""
    q, M, one = gfitc_q(joints, y, sites, w), joints[0].upsilon.shape[1], np.ones(1)
    mean, cov = moments(q)
    total = sum(g(q_k) - g((joint.precision, np.zeros(len(mean[0])))) for q_k, joint in zip(q, joints, strict=True))
    for joint, Delta, linear in zip(joints, *gfitc_totals(y, sites), strict=True):
        e = 1 + Delta * joint.s
        total += np.sum((w - 1) * 0.5 * (joint.s * linear**2 / e - np.log(e)))
    for i, yi, k in factors(y, len(joints)):
        q_y, cavity_y, q_k, cavity_k = gfitc_cavities(mean, cov, sites, M, i, yi, k)
        log_z, _, _ = tilt(cavity_y, cavity_k, one, one, 0.0, 0.0)
        total += w[i] * (log_z + g(cavity_y) + g(cavity_k) - g(q_y) - g(q_k))
    return float(total)


# --- VI: the bound (15) for any q(u), one Gaussian per class ---


def vi_kl(K, mean, cov):
    """KL[q(u) ‖ p(u)], summed over classes."""
    total = 0.0
    for K_k, m, V in zip(K, mean, cov, strict=True):
        quadratic = m @ np.linalg.solve(K_k, m) + np.trace(np.linalg.solve(K_k, V))
        total += 0.5 * (quadratic - len(m) + np.linalg.slogdet(K_k)[1] - np.linalg.slogdet(V)[1])
    return float(total)


def vi_bound(X, y, Z, lengthscale, variance, noise, mean, cov, weights=None, epsilon=1e-3):
    """Σ_i E_q[log p(y_i|f_i)] − KL, with p(y|f) = 1 − ε + ε/C where f^y is the largest and ε/C elsewhere."""
    K, _, _ = prior(X, Z, lengthscale, variance, noise)
    q, C = Result(None, mean, cov, np.nan, 0, True), len(Z)
    log_p = log_class_probabilities(*latent_moments(q, X, Z, lengthscale, variance, noise))
    p = np.exp(log_p[np.arange(len(y)), y])
    right, wrong = np.log(1 - epsilon + epsilon / C), np.log(epsilon / C)
    return float(ones_if_none(weights, X) @ (p * right + (1 - p) * wrong)) - vi_kl(K, mean, cov)


def natural(K, mean, cov):
    """q as the package's VI keeps it: per class LᵀV⁻¹L − I and LᵀV⁻¹m, with L = chol K."""
    S, r = np.empty(cov.shape), np.empty(mean.shape)
    for k, L in enumerate(np.linalg.cholesky(K)):
        precision = np.linalg.inv(cov[k])
        S[k], r[k] = L.T @ precision @ L - np.eye(len(L)), L.T @ precision @ mean[k]
    return S, r


def flat(mean, cov):
    """q as the package's PlainVI keeps it: all means, then row by row the lower triangles with log diagonals."""
    parts = [mean.ravel()]
    for lower in np.linalg.cholesky(cov):
        parts += [np.append(row[:i], np.log(row[i])) for i, row in enumerate(lower)]
    return np.concatenate(parts)


def random_q(K, seed=0, size=1.0):
    """Some q(u) with nothing special about it, its means about `size` standard deviations of the prior."""
    rng = np.random.default_rng(seed)
    L = np.linalg.cholesky(K)
    mean = size * np.einsum("kml,kl->km", L, rng.standard_normal(K.shape[:2]))
    half = L @ (0.5 * np.eye(K.shape[-1]) + 0.3 * rng.standard_normal(K.shape))
    return mean, half @ half.transpose(0, 2, 1)


# --- log Z as a function of the hyper-parameters, for finite differences ---
# theta is a dict of Z, log_lengthscale, log_variance, log_noise.


FIXED_POINT = {"ep": ep_fixed_point, "sep": sep_fixed_point, "gfitc": gfitc_fixed_point}


def unpack(theta):
    return theta["Z"], *(np.exp(theta[name]) for name in ("log_lengthscale", "log_variance", "log_noise"))


def log_z_fixed_point(theta, X, y, method="ep", **options):
    """log Z with the sites iterated to convergence at theta; for EP its gradient is (10)."""
    result = FIXED_POINT[method](X, y, *unpack(theta), **options)
    if not result.converged:
        raise RuntimeError(f"{method} did not converge in {result.sweeps} sweeps")
    return result.log_z


def log_z_fixed_sites(theta, X, y, sites, weights=None):
    """log Z with the sites held fixed in u-space (υ included) while K, k(Z,X) and κ move: "inner exact"."""
    log_z = sep_log_z if isinstance(sites, TiedSites) else ep_log_z
    return log_z(*prior(X, *unpack(theta)), y, sites, ones_if_none(weights, X))


def log_z_fixed_cavities(theta, X, y, sites, reference, weights=None):
    """g(θ) − g(θ_prior) + Σ log Z_ik with sites and cavities fixed in u-space, the cavities as they are
    at the hyper-parameters `reference`. Its gradient at theta = reference is the right side of (10): "inner".
    """
    K, upsilon, s = prior(X, *unpack(theta))
    K_reference, _, _ = prior(X, *unpack(reference))
    C, w = len(K), ones_if_none(weights, X)
    if isinstance(sites, TiedSites):
        q = sep_q(K, sites, np.ones(C))
        tied = sep_q(K_reference, sites, 1 - 1 / sep_counts(y, C, w))
        cavities = {(i, k): (tied[yi], tied[k]) for i, yi, k in factors(y, C)}
    else:
        q, q_reference = ep_q(K, y, sites, w), ep_q(K_reference, y, sites, w)
        cavities = {(i, k): ep_cavity(q_reference, sites, i, yi, k) for i, yi, k in factors(y, C)}
    total = sum(g(q_k) for q_k in q) - g_prior(K)
    for i, yi, k in factors(y, C):
        total += w[i] * tilt(*cavities[i, k], upsilon[yi, i], upsilon[k, i], s[yi, i], s[k, i])[0]
    return float(total)


def directional_derivative(f, theta, direction, step=1e-3):
    """d/dε f(theta + ε direction), five-point formula, error O(step⁴); direction may name some keys only."""

    def at(shift):
        return f({name: value + shift * direction.get(name, 0.0) for name, value in theta.items()})

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


# --- Prediction ---


def latent_moments(result, X_new, Z, lengthscale, variance, noise):
    """S: mean m* = υᵀm and variance v* = s + υᵀVυ of f^k(x*), both (N_new,C); v* includes the noise."""
    _, upsilon, s = prior(X_new, Z, lengthscale, variance, noise)
    mean = np.einsum("knm,km->nk", upsilon, result.mean)
    return mean, s.T + np.einsum("knm,kml,knl->nk", upsilon, result.cov, upsilon)


def log_class_probabilities(mean, variance):
    """S: log ∫ N(f|m_k,v_k) Π_{j≠k} Φ((f − m_j)/√v_j) df for every row and class.

    Gauss–Legendre, 10 nodes a panel; each class puts panel edges at 0, ½, 1, … 40 of its standard deviations
    on either side of its mean: accurate however much the variances differ.
    """
    node, node_weight = np.polynomial.legendre.leggauss(10)
    sd, log_p = np.sqrt(variance), np.empty(mean.shape)
    for i in range(len(mean)):
        edge = np.unique(mean[i] + sd[i] * np.linspace(-40, 40, 161)[:, None])
        center, half = (edge[1:] + edge[:-1]) / 2, (edge[1:] - edge[:-1]) / 2
        f = (center[:, None] + half[:, None] * node).ravel()
        log_weight = np.log((half[:, None] * node_weight).ravel())
        z = (f[:, None] - mean[i]) / sd[i]
        log_cdf = log_ndtr(z)
        for k in range(mean.shape[1]):
            log_density = -0.5 * z[:, k] ** 2 - 0.5 * np.log(2 * np.pi) - np.log(sd[i, k])
            log_p[i, k] = logsumexp(log_weight + log_density + log_cdf.sum(axis=1) - log_cdf[:, k])
    return log_p


def predict_log_proba(result, X_new, Z, lengthscale, variance, noise):
    return log_class_probabilities(*latent_moments(result, X_new, Z, lengthscale, variance, noise))
