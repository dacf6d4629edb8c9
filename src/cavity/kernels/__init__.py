"""Covariance functions: RBF, Matérn 1/2, 3/2 and 5/2, linear, constant, and their sums and products."""

from cavity.kernels.base import Kernel, Params, Product, ScaledKernel, Sum
from cavity.kernels.linear import Constant, Linear
from cavity.kernels.stationary import RBF, Matern12, Matern32, Matern52

__all__ = ["RBF", "Constant", "Kernel", "Linear", "Matern12", "Matern32", "Matern52", "Params", "Product", "Sum"]

# The kernels that `GPClassifier(kernel=...)` and `cavity fit --kernel` accept by name.
BY_NAME: dict[str, type[ScaledKernel]] = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "linear": Linear,
}
