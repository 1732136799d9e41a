"""State kept beside the event log, so that the log can be cut and a start is quick."""
