"""Numerical ground floor: every jitter, floor and clamp lives here, scaled by the dtype."""
