"""Runs exo: the command line, settings, directories, logging, and the composition of one node."""
