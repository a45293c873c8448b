from tidemark.broker.coordination.partitioner import java_hash, partition_for


def test_the_hash_is_javas() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert java_hash("😀") == 1772899  # two UTF-16 units


def test_a_group_has_kafkas_partition() -> None:
    assert partition_for("hello", partitions=50) == 99162322 % 50
    assert partition_for("polygenelubricants", partitions=50) == 0  # the smallest int has no absolute value
    assert partition_for("test-group", partitions=50) == abs(java_hash("test-group")) % 50
