"""What coordinators have in common: state that is an internal topic, replayed by whoever leads its partition."""
