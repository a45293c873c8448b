"""The data pipeline: topics in, tables and topics out, on Spark. `tidemark pipeline` is its command."""
