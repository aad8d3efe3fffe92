"""Hypothesis profiles, and nothing else."""

from hypothesis import HealthCheck, settings

# No deadline: a first example compiles forms and converters, and CI machines pause.
# `ci` is Hypothesis's own (derandomized), which it loads where CI is set.
settings.register_profile(
    "dev", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", deadline=None, max_examples=10_000)
if settings.get_current_profile_name() == "default":
    settings.load_profile("dev")
