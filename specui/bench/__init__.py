"""The benchmark: kinds of work, run in turn with and without drafts, and tables that can be believed."""
