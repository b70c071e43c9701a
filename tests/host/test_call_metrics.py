"""Numbers of calls as Prometheus reads them."""

from prometheus_client import CollectorRegistry, generate_latest

from host.call_metrics import CallCollector
from host.function import Usage


def text(collector):
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def test_calls_are_counted_by_model_and_outcome():
    calls = CallCollector()
    numbers = calls.of("a")
    numbers.queued = 2
    numbers.start(0.07, waiting=1, in_flight=1)
    numbers.first.observe(0.2)
    numbers.end("ok", 3.0, waiting=0, in_flight=0, usage=Usage(prompt_tokens=7, completion_tokens=3, accepted_tokens=1))
    numbers.end("cancelled", 700.0, waiting=0, in_flight=0, usage=Usage())
    shown = text(calls)
    for line in (
        'coldframe_requests_total{model="a",outcome="ok"} 1.0',
        'coldframe_requests_total{model="a",outcome="cancelled"} 1.0',
        'coldframe_requests_in_flight{model="a"} 0.0',
        'coldframe_requests_queued{model="a"} 0.0',
        'coldframe_queue_seconds_bucket{le="0.05",model="a"} 0.0',
        'coldframe_queue_seconds_bucket{le="0.1",model="a"} 1.0',
        'coldframe_queue_seconds_count{model="a"} 1.0',
        'coldframe_request_seconds_bucket{le="600.0",model="a"} 1.0',
        'coldframe_request_seconds_bucket{le="+Inf",model="a"} 2.0',
        'coldframe_request_seconds_sum{model="a"} 703.0',
        'coldframe_time_to_first_token_seconds_count{model="a"} 1.0',
        'coldframe_tokens_total{kind="prompt",model="a"} 7.0',
        'coldframe_tokens_total{kind="accepted",model="a"} 1.0',
    ):
        assert line in shown.splitlines(), line
    assert 'kind="rejected"' not in shown


def test_a_model_whose_calls_only_wait_shows_them_and_nothing_in_flight():
    calls = CallCollector()
    calls.of("a").queued = 3
    shown = text(calls)
    assert 'coldframe_requests_queued{model="a"} 3.0' in shown
    assert "in_flight{" not in shown
    assert "_count{" not in shown
