"""What every test run shares: how hard hypothesis tries."""

from hypothesis import HealthCheck, settings

# The same examples in every run: a failure that nobody can repeat helps nobody.  `--hypothesis-profile=thorough`
# looks for new ones.  Generating is slow on a busy machine, which says nothing about the code under test.
settings.register_profile(
    "fast",
    derandomize=True,
    database=None,
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", parent=settings.get_profile("fast"), derandomize=False, max_examples=2000)
settings.load_profile("fast")
