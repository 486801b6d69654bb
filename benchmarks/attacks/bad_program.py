"""A site with a modified program: `python -m benchmarks.attacks.bad_program ATTACK ROUND`, then `join` and its options.

From that round on it sends what the attack says (see `site_attacks.ATTACKS`), whatever bound it is told.
"""

import sys

from benchmarks.attacks.attacked_run import attack_from
from rofl.cli import main

if __name__ == "__main__":
    attack, first = sys.argv.pop(1), int(sys.argv.pop(1))
    with attack_from(attack, client=None, first=first):
        main()
