"""Covariance functions: RBF, Matérn, Laplace, linear, constant, sums, products, shared length-scales."""

from cavity.kernels.base import Kernel, Params, Product, ScaledKernel, Sum
from cavity.kernels.grouped import Grouped
from cavity.kernels.laplace import Laplace
from cavity.kernels.linear import Constant, Linear
from cavity.kernels.stationary import RBF, Matern12, Matern32, Matern52

__all__ = [
    "RBF", "Constant", "Grouped", "Kernel", "Laplace", "Linear", "Matern12", "Matern32", "Matern52", "Params",
    "Product", "Sum",
]  # fmt: skip

# The kernels that `GPClassifier(kernel=...)` and `cavity fit --kernel` accept by name.
BY_NAME: dict[str, type[ScaledKernel]] = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "laplace": Laplace,
    "linear": Linear,
}
