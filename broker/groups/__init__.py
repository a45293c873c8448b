"""The group coordinator: a pure state machine per partition of `__consumer_offsets`, and a thin host around each."""
