"""The public surface: what `import rofl` offers, and that it works from a plain script."""

import subprocess
import sys

import rofl

SCRIPT = """
import rofl

run = rofl.run(rofl.preset("digits", rounds=1, data__train=100, clients=2, cohort=2), out="out")
print(run.summary.digest)
"""


def test_the_public_names_are_these() -> None:
    assert sorted(rofl.__all__) == ["Experiment", "Run", "UserError", "from_data", "preset", "resume", "run"]
    assert all(getattr(rofl, name).__doc__ for name in rofl.__all__)


def test_a_script_without_a_main_guard_can_use_workers(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert len(done.stdout.strip()) == 64
