import os

from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # torch comes later: tests run side by side, and threads would wait for each other
os.environ.setdefault("ROFL_DEVICE", "cpu")  # wherever tests run: they ask for equal bits
settings.register_profile(
    "rofl", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rofl")
