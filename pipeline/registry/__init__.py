"""Schema registries: values and keys framed as Confluent's clients frame them, in Avro, JSON Schema and Protobuf."""
