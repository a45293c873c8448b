from broker.groups.alarms import Alarms


def test_alarms_ring_in_order_and_only_when_due() -> None:
    alarms = Alarms()
    rung: list[str] = []
    for at_ms, name in ((30, "c"), (10, "a"), (20, "b"), (10, "a2")):
        alarms.set(at_ms, lambda _, name=name: rung.append(name))  # type: ignore[misc]
    assert alarms.next_ms == 10
    list(alarms.due(20))
    assert rung == ["a", "a2", "b"]
    assert alarms.next_ms == 30


def test_a_cancelled_alarm_is_silent_and_not_waited_for() -> None:
    alarms = Alarms()
    alarms.set(10, lambda _: None).cancel()
    assert alarms.next_ms is None
    assert list(alarms.due(100)) == []


def test_an_alarm_may_set_another_that_is_due_at_once() -> None:
    alarms = Alarms()
    rung: list[int] = []
    alarms.set(10, lambda now_ms: alarms.set(now_ms, rung.append))
    list(alarms.due(15))
    assert rung == [15]


def test_the_driver_hears_of_every_earlier_alarm() -> None:
    told: list[int] = []
    alarms = Alarms(told.append)
    for at_ms in (50, 70, 20):
        alarms.set(at_ms, lambda _: None)
    assert told == [50, 20]
