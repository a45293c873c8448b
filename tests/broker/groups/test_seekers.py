from tidemark.broker.groups.seekers import Seekers


class Connection:
    is_closed = False


def test_clients_that_ask_at_the_same_time_are_counted_together() -> None:
    seekers = Seekers()
    for at_ms in range(3):
        seekers.asked("g", Connection(), at_ms)
    seekers.asked("other", Connection(), 3)
    assert seekers.count("g", 3) == 3
    assert seekers.count("nobody's", 3) == 0


def test_a_client_that_asks_again_over_another_connection_counts_once() -> None:
    seekers, first, second = Seekers(), Connection(), Connection()
    seekers.asked("g", first, 0)
    first.is_closed = True
    seekers.asked("g", second, 1)
    seekers.asked("g", second, 2)
    assert seekers.count("g", 2) == 1


def test_clients_that_were_there_together_count_though_some_have_moved_on() -> None:
    seekers, first, second = Seekers(), Connection(), Connection()
    seekers.asked("g", first, 0)
    seekers.asked("g", second, 0)
    first.is_closed = second.is_closed = True
    assert seekers.count("g", 1) == 2


def test_who_asked_long_ago_is_forgotten() -> None:
    seekers = Seekers()
    seekers.asked("g", Connection(), 0)
    seekers.asked("g", Connection(), 0)
    assert seekers.count("g", 1_001) == 0
    seekers.asked("g", Connection(), 1_001)
    assert seekers.count("g", 1_001) == 1
