from tidemark.broker.groups.recent_lookups import RecentLookups


class Connection:
    is_closed = False


def test_clients_that_ask_at_the_same_time_are_counted_together() -> None:
    recent_lookups = RecentLookups()
    for at_ms in range(3):
        recent_lookups.asked("g", Connection(), at_ms)
    recent_lookups.asked("other", Connection(), 3)
    assert recent_lookups.count("g", 3) == 3
    assert recent_lookups.count("nobody's", 3) == 0


def test_a_client_that_asks_again_over_another_connection_counts_once() -> None:
    recent_lookups, first, second = RecentLookups(), Connection(), Connection()
    recent_lookups.asked("g", first, 0)
    first.is_closed = True
    recent_lookups.asked("g", second, 1)
    recent_lookups.asked("g", second, 2)
    assert recent_lookups.count("g", 2) == 1


def test_clients_that_were_there_together_count_though_some_have_moved_on() -> None:
    recent_lookups, first, second = RecentLookups(), Connection(), Connection()
    recent_lookups.asked("g", first, 0)
    recent_lookups.asked("g", second, 0)
    first.is_closed = second.is_closed = True
    assert recent_lookups.count("g", 1) == 2


def test_who_asked_long_ago_is_forgotten() -> None:
    recent_lookups = RecentLookups()
    recent_lookups.asked("g", Connection(), 0)
    recent_lookups.asked("g", Connection(), 0)
    assert recent_lookups.count("g", 1_001) == 0
    recent_lookups.asked("g", Connection(), 1_001)
    assert recent_lookups.count("g", 1_001) == 1
