"""Where engine, state and protocol meet. Pure."""
