"""The sparse Gaussian process: prior, q(u), sites, gradients and class probabilities."""
