"""How a broker's process writes its log: one event a line, for people or as JSON, and at which levels."""
