"""The management routes and the dialects' endpoints, one noun per file."""
