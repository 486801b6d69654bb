"""Settings: the schema of an experiment, overrides, TOML files and presets.

May import: core, data, models, methods.
"""
