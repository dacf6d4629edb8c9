"""Loop oracles and stored reference values, independent of the package under test."""
