"""Timed and long scripts. A package, since a dependency installs one of the same name that would be found instead."""
