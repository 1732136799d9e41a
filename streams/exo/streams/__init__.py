"""The contracts of exo: every message, subject and state, and the pure functions over them.

Imported by all other packages; never does I/O, never reads a clock.
"""
