"""Side-by-side benchmarks of Tidemark and Apache Kafka: `python -m bench`. See docs/performance.md."""
