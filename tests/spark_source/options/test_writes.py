"""The options of a write: what they come to, and every mistake in one line."""

import pytest

from rmqstore.errors import Rejected
from spark_source.options.writes import QUEUES_DEFAULT, parse_sink_options


def parsed(is_stream: bool = False, **options: str):
    return parse_sink_options({"path": "/data/store"} | options, is_stream=is_stream)


def test_the_defaults():
    request = parsed()
    assert (request.path, request.topic, request.queue_count) == ("/data/store", None, QUEUES_DEFAULT)
    assert (request.writer_id, request.batch_id) == (None, 0)
    assert request.config.log_file_size == 64 * 1024 * 1024


def test_names_in_any_case_and_what_spark_adds():
    request = parsed(is_stream=True, TOPIC="orders", Queues="7", checkpointlocation="/c", queryName="q")
    assert (request.topic, request.queue_count) == ("orders", 7)


def test_the_sizes_of_a_broker(tmp_path):
    assert parsed(fileSizes="broker").config.log_file_size == 1 << 30
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1048576\nbrokerClusterName=c\n")
    config = parsed(brokerConf=str(conf), storeHost="203.0.113.9:10911").config
    assert (config.log_file_size, config.cluster_name, config.store_host) == (1 << 20, "c", "203.0.113.9:10911")


def test_a_batch_with_a_name_of_its_own():
    request = parsed(writerId="daily", batchId="20240501")
    assert (request.writer_id, request.batch_id) == ("daily", 20240501)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"topics": "a"}, "unknown option 'topics': did you mean topic"),
        ({"subscribe": "a"}, "unknown option 'subscribe': a write takes path, topic,"),
        ({"queues": "0"}, "queues='0': write a whole number from 1"),
        ({"path": "s3://bucket/x"}, "s3: is not a file system path"),
        ({"writerId": "x"}, "writerId and batchId: give both"),
        ({"batchId": "-1", "writerId": "x"}, "batchId='-1': write a whole number"),
        ({"storeHost": "no port"}, "no port"),
        ({"brokerConf": "/nowhere/broker.conf"}, "/nowhere/broker.conf"),
        ({"fileSizes": "big"}, "fileSizes='big': write embedded or broker"),
        ({"fileSizes": "broker", "brokerConf": "/x"}, "keep one of them"),
        ({"queues": "x", "topix": "a"}, "2 mistakes: (1) "),
    ],
)
def test_mistakes(options, advice):
    with pytest.raises(Rejected) as caught:
        parsed(**options)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_path():
    with pytest.raises(Rejected, match="no store: name its directory in save"):
        parse_sink_options({}, is_stream=False)


def test_a_stream_is_known_by_its_checkpoint():
    with pytest.raises(Rejected, match=r"writerId is for df\.write"):
        parsed(is_stream=True, writerId="x", batchId="1")
