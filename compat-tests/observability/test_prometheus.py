"""A real Prometheus scrapes a broker: the rules that ship are valid, and every query of the dashboard returns data."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from harness.broker_process import Tidemark
from harness.ports import free_port

ROOT = Path(__file__).parents[2]
RULES = ROOT / "config" / "prometheus" / "tidemark-rules.yml"
DASHBOARD = json.loads((ROOT / "config" / "grafana" / "tidemark.json").read_text(encoding="utf-8"))
SECONDS_MAX = 90.0


def get(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        return bytes(answer.read())


def post(url: str, value: object) -> int:
    """The status of the answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    asked = urllib.request.Request(url, json.dumps(value).encode(), {"Content-Type": "application/json"})
    try:
        with opener.open(asked, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of its HTTP listener."""
    port = free_port()
    settings = {"http.listeners": f"HTTP://127.0.0.1:{port}", "offsets.topic.num.partitions": "1"}
    process = Tidemark(tmp_path_factory.mktemp("broker"), settings=settings)
    process.start()
    producer = Producer({"bootstrap.servers": process.bootstrap})
    for number in range(100):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(30) == 0
    # By the classic protocol, whose groups have generations that count up.
    consumer = Consumer(
        {"bootstrap.servers": process.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + SECONDS_MAX
    while consumer.poll(1.0) is None:
        assert time.monotonic() < deadline, "nothing was read"
    consumer.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
    for status, path in ((200, "/topics/orders/records"), (404, "/nowhere")):
        assert post(f"http://127.0.0.1:{port}{path}", {"value": 1}) == status
    yield f"127.0.0.1:{port}"
    consumer.close()
    process.stop()


@pytest.fixture(scope="module")
def prometheus(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its own address."""
    home, port = tmp_path_factory.mktemp("prometheus"), free_port()
    shutil.copy(RULES, home)
    shipped = (RULES.parent / "prometheus.yml").read_text(encoding="utf-8")
    (home / "prometheus.yml").write_text(shipped.replace("127.0.0.1:8082", broker).replace("15s", "1s"))
    command = ["prometheus", f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data"]
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log) as process,
    ):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def query(prometheus: str, expression: str) -> list[Any]:
    try:
        answer = json.loads(get(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
    except OSError:
        return []  # it starts
    assert answer["status"] == "success", answer
    found: list[Any] = answer["data"]["result"]
    return found


def test_the_rules_are_valid_and_say_what_to_do() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    text = RULES.read_text(encoding="utf-8")
    assert text.count("runbook:") == text.count("alert:") > 10


# By alert: series of an instance that it is about (their labels beside that), each with how much it is where the alert
# is to fire, and where it is not. What ends in _total is that much more every minute.
CONTROLLER = "kafka_controller_kafkacontroller"
REPLICAS = "kafka_server_replicamanager"
FIRES = {
    "NodeDown": {"up": (0, 1)},
    "NoController": {f"{CONTROLLER}_activecontrollercount": (0, 1)},
    "OfflinePartitions": {f"{CONTROLLER}_offlinepartitionscount": (2, 0)},
    "UnderMinIsr": {f"{REPLICAS}_underminisrpartitioncount": (1, 0)},
    "UnderReplicated": {f"{REPLICAS}_underreplicatedpartitions": (1, 0)},
    "LogDirectoryOffline": {"kafka_log_logmanager_offlinelogdirectorycount": (1, 0)},
    "ReplicaOffline": {
        f"{REPLICAS}_offlinereplicacount": (1, 1),
        "kafka_log_logmanager_offlinelogdirectorycount": (0, 1),  # the disk is told of, not each replica on it
    },
    "FencedBroker": {f"{CONTROLLER}_fencedbrokercount": (1, 0)},
    "GroupLag": {'kafka_consumergroup_lag_seconds{consumergroup="g",topic="t",partition="0"}': (400, 200)},
    "SlowEventLoop": {"tidemark_event_loop_late_total": (6, 1)},
    "RequestErrors": {
        'kafka_network_requestmetrics_errors_total{request="Produce",error="KAFKA_STORAGE_ERROR"}': (1, 0),
        'kafka_network_requestmetrics_errors_total{request="Produce",error="NOT_LEADER_OR_FOLLOWER"}': (9, 9),
    },
    "OldTransaction": {"kafka_coordinator_transaction_oldest_open_seconds": (1000, 800)},
    "FewDescriptors": {"process_open_fds": (85, 75), "process_max_fds": (100, 100)},
    "HttpErrors": {
        'tidemark_http_requests_total{path="/topics",status="200"}': (90, 90),
        'tidemark_http_requests_total{path="/topics",status="503"}': (10, 1),
    },
}


def of_instance(series: str, amount: int) -> dict[str, str]:
    name, _, labels = series.rstrip("}").partition("{")
    every_minute = f"0+{amount}x60" if name.endswith("_total") else f"{amount}+0x60"
    told = ",".join(filter(None, ('job="tidemark"', 'instance="a"', labels)))
    return {"series": f"{name}{{{told}}}", "values": every_minute}


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    [group] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    assert {each["alert"] for each in group["rules"]} == {f"Tidemark{name}" for name in FIRES}
    cases = []
    for name, series in FIRES.items():
        for which, fires in ((0, True), (1, False)):
            query = f'count(ALERTS{{alertname="Tidemark{name}",alertstate="firing"}})'
            expected = [{"labels": "{}", "value": 1}] if fires else []
            asked = [of_instance(each, amounts[which]) for each, amounts in series.items()]
            found = [{"expr": query, "eval_time": "45m", "exp_samples": expected}]
            cases.append({"interval": "1m", "input_series": asked, "promql_expr_test": found})
    wanted = tmp_path / "test.yml"
    wanted.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))
    done = subprocess.run(["promtool", "test", "rules", str(wanted)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_http_requests_that_fail_are_told_of_but_not_health_that_says_not_ready(
    tmp_path: Path,
) -> None:
    def series(instance: str, path: str, status: int, a_minute: int) -> dict[str, str]:
        labels = f'instance="{instance}",path="{path}",status="{status}"'
        return {"series": f"tidemark_http_requests_total{{{labels}}}", "values": f"0+{a_minute}x20"}

    [group] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    [rule] = [each for each in group["rules"] if each["alert"] == "TidemarkHttpErrors"]
    told = {
        "exp_labels": {"severity": "warning", "instance": "a"},
        "exp_annotations": {
            "summary": "a fails to answer 10% of its HTTP requests.",
            "runbook": rule["annotations"]["runbook"],
        },
    }
    asked = [series("a", "/topics", 200, 90), series("a", "/topics", 503, 10)]
    asked += [series("b", "/topics", 200, 90), series("b", "/topics", 500, 1), series("b", "/readyz", 503, 90)]
    alert = {"eval_time": "15m", "alertname": rule["alert"], "exp_alerts": [told]}
    case = {"interval": "1m", "input_series": asked, "alert_rule_test": [alert]}
    wanted = tmp_path / "test.yml"
    wanted.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", str(wanted)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_with_what_is_scraped(broker: str) -> None:
    text = get(f"http://{broker}/metrics")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    # It lints names as well, and would have some of Kafka's otherwise: what it cannot parse is another exit code.
    assert done.returncode in (0, 3), done.stderr.decode()


def test_every_query_of_the_dashboard_returns_data(prometheus: str) -> None:
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 30
    missing = [re.sub(r"\$(topic|group|instance)", ".*", each.replace("$__rate_interval", "1m")) for each in queries]
    deadline = time.monotonic() + SECONDS_MAX
    while missing and time.monotonic() < deadline:
        time.sleep(0.5)
        missing = [each for each in missing if not query(prometheus, each)]
    assert missing == []


def test_every_rule_can_be_evaluated(prometheus: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            groups = json.loads(get(f"{prometheus}/api/v1/rules"))["data"]["groups"]
        except OSError:
            groups = []
        rules = [rule for group in groups for rule in group["rules"]]
        if rules and all(rule["health"] == "ok" for rule in rules):
            return
        time.sleep(0.5)
    raise AssertionError(rules)
