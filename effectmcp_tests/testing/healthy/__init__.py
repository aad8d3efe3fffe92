"""Tools without a mistake, written in ways that a hasty checker would suspect."""
