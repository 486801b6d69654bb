"""Pure maths on tensors: no I/O, no config, no randomness of its own.

May import: nothing.
"""
