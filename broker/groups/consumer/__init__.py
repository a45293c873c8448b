"""Consumer groups that the broker itself assigns (KIP-848)."""
