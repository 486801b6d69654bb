"""Published data sets, one file each; a loader reads the files that the authors publish from the set's folder.

A new one needs a function `load_<name>(folder) -> Dataset` and a line in `rofl.data.dataset_registry`.
May import: core, data.
"""
