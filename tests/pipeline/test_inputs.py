from tidemark.pipeline.inputs import enough_is_no_more_than_most


def test_a_batch_does_not_wait_for_more_records_than_it_may_have() -> None:
    """The connector refuses to start otherwise: files of 128 MB are wanted, and batches of 2,000 records."""
    options = {"minOffsetsPerTrigger": "87381", "maxOffsetsPerTrigger": "2000", "subscribe": "t"}
    assert enough_is_no_more_than_most(options) == {**options, "minOffsetsPerTrigger": "2000"}


def test_options_that_agree_are_left_alone() -> None:
    for options in (
        {"minOffsetsPerTrigger": "5"},
        {"maxOffsetsPerTrigger": "5"},
        {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "5"},
    ):
        assert enough_is_no_more_than_most(options) is options
