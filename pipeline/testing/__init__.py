"""Pipelines under test: records in, rows out, on a broker inside this process and a local Spark."""
