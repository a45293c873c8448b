import pytest

from tidemark.pipeline.source.client import EARLIEST, LATEST, ReadFailed
from tidemark.pipeline.source.options import ReadOptions, read_options

NEEDED = {"kafka.bootstrap.servers": "a:9092,[::1]:9093", "subscribe": "one, two"}


def batch(**options: str) -> ReadOptions:
    return read_options({**NEEDED, **options}, streaming=False)


def test_defaults_are_the_connectors() -> None:
    options = batch()
    assert options.selection.topics == ("one", "two")
    assert (options.starting.bound, options.ending.bound) == (EARLIEST, LATEST)
    assert read_options(NEEDED, streaming=True).starting.bound == LATEST
    assert options.fail_on_data_loss
    assert not options.with_headers
    assert not options.committed
    assert options.access == "auto"


def test_names_are_read_in_any_case() -> None:
    given = {"KAFKA.bootstrap.servers": "a:1", "SubscribePattern": "x.*", "INCLUDEheaders": "TRUE"}
    options = read_options(given, streaming=False)
    assert options.selection.pattern == "x.*"
    assert options.with_headers


def test_positions_by_partition_and_time() -> None:
    options = batch(startingOffsets='{"one": {"0": 5, "1": -2}}', endingTimestamp="1000")
    assert options.starting.offsets == {("one", 0): 5, ("one", 1): EARLIEST}
    assert options.ending.time == 1000
    both = batch(startingOffsets="earliest", startingOffsetsByTimestamp='{"one": {"0": 7}}')
    assert both.starting.times == {("one", 0): 7}


def test_directories_may_be_mounted_elsewhere() -> None:
    assert batch(**{"tidemark.log.dirs": "/data/=/mnt/data,/b=/c"}).moved == (("/data", "/mnt/data"), ("/b", "/c"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "nowhere"}, "kafka.bootstrap.servers"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanisms, sasl.username, sasl.password must be given"),
        ({"assign": '{"one": [0]}'}, "subscribe"),
        ({"subscribe": "", "assign": '{"one": 0}'}, "assign"),
        ({"subscribe": "", "subscribePattern": "("}, "subscribePattern"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": "sometimes"}, "startingOffsets"),
        ({"startingOffsets": '{"one": 3}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"one": {"0": -2}}'}, "endingOffsets"),
        ({"startingTimestamp": "noon"}, "startingTimestamp"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"maxTriggerDelay": "long"}, "maxTriggerDelay"),
        ({"tidemark.access": "magic"}, "tidemark.access"),
        ({"tidemark.log.dirs": "/only"}, "tidemark.log.dirs"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(ReadFailed, match=named.replace(".", r"\.")):
        batch(**options)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ReadFailed, match="endingOffsets"):
        read_options({**NEEDED, "endingOffsets": "latest"}, streaming=True)


def test_a_login_is_taken_from_javas_line_or_by_names() -> None:
    jaas = r'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b\"c\\";'
    known = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
    read = batch(**known, **{"kafka.sasl.jaas.config": jaas})
    assert (read.security["sasl.username"], read.security["sasl.password"]) == ("a", 'b"c\\')
    assert "jaas" not in str(read.security)
