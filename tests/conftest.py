import os
import signal

from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # torch comes later: tests run side by side, and threads would wait for each other
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process that a test starts would compile torch again
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores Ctrl-C, and so would its processes
os.environ.setdefault("ROFL_DEVICE", "cpu")  # wherever tests run: they ask for equal bits
settings.register_profile(
    "rofl", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rofl")
