"""Decide and supervise: the master, placement, the worker, telemetry, the catalogue and model files.

`node.NodeServices` composes them for one node. Never imports a model library or a web server; runners are
started as processes.
"""
