"""Where rows go: topics (exactly once, through transactions) and tables (exactly once, through Spark's commit log)."""
