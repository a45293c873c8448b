"""The table of what each API touches, as Kafka has it: one file per kind of resource, each with its `RULES`."""
