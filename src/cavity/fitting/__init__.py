"""One fit: validate, encode, initialize, train, calibrate."""
