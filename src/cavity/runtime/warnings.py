"""The category of all warnings of this package."""


class CavityWarning(UserWarning):
    """Something about a fit or a prediction that the user should know; filter it as a category of its own."""
