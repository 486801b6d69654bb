"""Settings: the experiment's schema, changes to it, files of it, and presets.

May import: core, data, models, methods.
"""
