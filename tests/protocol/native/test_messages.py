"""

Requests read in steps are what they are when they are read at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import attrs
import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triolog.protocol import errors, limits
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.limits import MAX_PARTITIONS_PER_REQUEST
from triolog.protocol.native import kinds, messages, structs
from triolog.protocol.native.calls.produce import RECORDS_PER_PAUSE
from triolog.protocol.native.kinds import FieldError, decode_error, encode_error
from triolog.protocol.native.messages import decode_request, decode_response

from tests.support.counts import counts
from tests.support.in_steps import finished
from tests.support.native_messages import ERRORS, MSGPACK_VALUES, REQUESTS, RESPONSES

APIS = st.sampled_from(list(messages.REQUESTS))
OF_EACH = settings(max_examples=counts(100))
"""Of each message: their fields are of the same few kinds."""


def over_the_wire(body: dict[str, Any]) -> dict[str, Any]:
    unpacked = msgpack.unpackb(msgpack.packb(body))
    assert isinstance(unpacked, dict)
    return unpacked


def complaint_about(api: str, body: dict[str, Any]) -> str:
    """What the server would answer to this body; the call's name when it has nothing to complain about."""
    try:
        decode_request(api, 1, body)
    except errors.RequestError as exc:
        return exc.message
    return api


@pytest.mark.parametrize("api", messages.REQUESTS)
@OF_EACH
@given(data=st.data())
def test_requests_round_trip(api: str, data: st.DataObject) -> None:
    request = data.draw(REQUESTS[api])
    assert decode_request(api, 1, over_the_wire(request.to_body())) == request


@given(api=APIS, body=st.dictionaries(st.text(max_size=12), MSGPACK_VALUES, max_size=5))
def test_any_map_is_a_message_or_an_answerable_error(api: str, body: dict[str, Any]) -> None:
    assert complaint_about(api, body).startswith(api)


@given(api=APIS.filter(lambda api: bool(messages.REQUESTS[api].keys)), data=st.data())
def test_one_wrong_value_anywhere_is_an_answerable_error(api: str, data: st.DataObject) -> None:
    body = over_the_wire(data.draw(REQUESTS[api]).to_body())
    holder: Any = body
    while True:
        key = data.draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
        inner = holder[key]
        if not (isinstance(inner, dict | list) and inner and data.draw(st.booleans())):
            break
        holder = inner
    holder[key] = data.draw(MSGPACK_VALUES)
    assert complaint_about(api, body).startswith((api, "isolation"))


@given(api=APIS, body=st.dictionaries(st.text(max_size=12), MSGPACK_VALUES, max_size=5))
def test_any_answer_is_a_message_or_the_servers_error(api: str, body: dict[str, Any]) -> None:
    try:
        decode_response(api, 1, body)
        complaint = ""
    except errors.RemoteProtocolError as exc:
        complaint = str(exc)
    assert not complaint or complaint.startswith(f"the server's response: {api}")


PARTITION = {"topic": "t", "partition": 0}
STAGE = {"application": "q", "version": 0}


@pytest.mark.parametrize(
    ("api", "body", "complaint"),
    [
        (
            "produce",
            {"partitons": []},
            "produce has unknown key 'partitons'. Known: acks, partitions, timeout_ms, transactional_id",
        ),
        ("produce", {"partitions": [], "transactional_id": ""}, "produce.transactional_id is str '', expected str"),
        ("produce", {}, "produce.partitions is missing, expected array"),
        ("produce", {"partitions": None}, "produce.partitions is nil, expected array"),
        ("produce", {"partitions": [7]}, "produce.partitions[0] is int 7, expected map"),
        (
            "produce",
            {"partitions": [{"topic": 5, "partition": 0, "records": b""}]},
            "produce.partitions[0].topic is int 5, expected str of 1 to 249 characters",
        ),
        (
            "produce",
            {"partitions": [{**PARTITION, "records": b""}, {**PARTITION, "records": b"", "recods": 1}]},
            "produce.partitions[1] has unknown key 'recods'. Known: expected_offset, partition, records, topic",
        ),
        ("produce", {"partitions": [PARTITION]}, "produce.partitions[0].records is missing, expected bin or array of records"),
        (
            "produce",
            {"partitions": [{**PARTITION, "records": [[None, None, b""], [1.5, None, None]]}]},
            f"produce.partitions[0].records[1].timestamp is float 1.5, expected nil or int from 0 to {limits.INT64_MAX}",
        ),
        (
            "produce",
            {"partitions": [{**PARTITION, "records": [[1, None, None, [["h"]]]]}]},
            "produce.partitions[0].records[0].headers[0] is array of 1, expected [str, bin or nil]",
        ),
        (
            "produce",
            {"partitions": [], "timeout_ms": True},
            "produce.timeout_ms is bool True, expected int from 0 to 2147483647",
        ),
        (
            "produce",
            {"partitions": [{**PARTITION, "partition": 2**31, "records": b""}]},
            "produce.partitions[0].partition is int 2147483648, expected int from 0 to 2147483647",
        ),
        (
            "fetch",
            {"partitions": [{**PARTITION, "offset": -2}]},
            f"fetch.partitions[0].offset is int -2, expected int from -1 to {limits.INT64_MAX}",
        ),
        ("fetch", {"partitions": [], "format": "csv"}, "fetch.format is str 'csv', expected one of 'batches', 'records'"),
        (
            "offsets_for_times",
            {"partitions": [{**PARTITION, "timestamp": "yesterday"}]},
            "offsets_for_times.partitions[0].timestamp is str 'yesterday', "
            f"expected int from -3 to {limits.INT64_MAX} or one of latest, earliest, max_timestamp",
        ),
        (
            "stage",
            {**STAGE, "task": "t", "partitions": [{**PARTITION, "records": [[None, None, None]]}]},
            "stage.partitions[0].records is array of 1, expected bin",
        ),
        (
            "commit_stage",
            {**STAGE, "tasks": [{"task": "t", "partitions": [{**PARTITION, "size_bytes": 1, "crc": 2**32}]}]},
            "commit_stage.tasks[0].partitions[0].crc is int 4294967296, expected int from 0 to 4294967295",
        ),
        (
            "commit_stage",
            {**STAGE, "tasks": [{"task": "t", "partitions": [{**PARTITION, "size_bytes": 0, "crc": 0}]}]},
            f"commit_stage.tasks[0].partitions[0].size_bytes is int 0, expected int from 1 to {limits.INT64_MAX}",
        ),
        ("abort_stage", {**STAGE, "tasks": [""]}, "abort_stage.tasks[0] is str '', expected str of 1 to 255 characters"),
        (
            "lease_segments",
            {"partitions": [], "lease_ms": 1, "lease_id": 5},
            "lease_segments.lease_id is int 5, expected str of 1 to 64 characters",
        ),
        (
            "explain",
            {"partitions": [PARTITION]},
            "explain.partitions[0] has none of offset, timestamp, start_timestamp, expected one",
        ),
        (
            "explain",
            {"partitions": [{**PARTITION, "offset": 1, "timestamp": 1}]},
            "explain.partitions[0] has offset and timestamp of offset, timestamp, start_timestamp, expected one",
        ),
        (
            "create_topics",
            {"topics": [{"name": "t", "partitions": 1, "config": {"k": 1}}]},
            "create_topics.topics[0].config[str 'k'] is int 1, expected str under a str",
        ),
        ("fetch", {"partitions": [], "gaps": True}, "fetch.gaps is bool True, expected one of 'refuse', 'skip'"),
        (
            "fetch",
            {"partitions": [], "isolation": "dirty"},
            "fetch.isolation is str 'dirty', expected one of 'read_uncommitted'",
        ),
        (
            "alter_configs",
            {"topics": [{"name": "t", "unset": ["k"]}]},
            "alter_configs.topics[0] has unknown key 'unset'. Known: delete, name, set",
        ),
        ("init_producer", {"transactional_id": "x" * 256}, "init_producer.transactional_id is str of 256 characters"),
        (
            "end_transaction",
            {"transactional_id": "x", "producer_id": 0, "producer_epoch": 32768, "commit": True},
            "end_transaction.producer_epoch is int 32768, expected int from 0 to 32767",
        ),
        (
            "end_transaction",
            {"transactional_id": "x", "producer_id": 0, "producer_epoch": 0},
            "end_transaction.commit is missing",
        ),
        ("commit_offsets", {"partitions": []}, "commit_offsets.group is missing, expected str of 1 to 255 characters"),
        (
            "commit_offsets",
            {"group": "g", "partitions": [{**PARTITION, "offset": 1, "metadata": "x" * 32768}]},
            "commit_offsets.partitions[0].metadata is str of 32768 characters, expected nil or str of at most 32767",
        ),
        (
            "commit_offsets",
            {"group": "g", "partitions": [], "transaction": {"transactional_id": "x", "producer_id": "7"}},
            "commit_offsets.transaction.producer_id is str '7', expected int",
        ),
        (
            "commit_offsets",
            {"group": "g", "partitions": [], "transaction": {"id": "x"}},
            "commit_offsets.transaction has unknown key 'id'. Known: producer_epoch, producer_id, transactional_id",
        ),
        ("commit_offsets", {"group": "g" * 256, "partitions": []}, "commit_offsets.group is str of 256 characters"),
        ("fetch_offsets", {"group": "g" * 32_768}, "fetch_offsets.group is str of 32768 characters"),
        ("list_groups", {"group": "g"}, "list_groups has unknown key 'group'. Known: "),
        ("delete_groups", {"groups": ["a", 1]}, "delete_groups.groups[1] is int 1, expected str of 1 to 32767 characters"),
        ("delete_topics", {"topics": ["a", "x" * 250]}, "delete_topics.topics[1] is str of 250 characters"),
        ("hello", {"client_id": ""}, "hello.client_id is str '', expected str of 1 to 255 characters"),
        ("hello", {b"client_id": ""}, "hello has unknown key b'client_id'. Known: client_id, software"),
    ],
)
def test_wrong_body_names_the_key_what_was_found_and_what_was_expected(api: str, body: dict[str, Any], complaint: str) -> None:
    with pytest.raises(errors.InvalidRequestError) as caught:
        decode_request(api, 1, body)
    assert caught.value.message.startswith(complaint)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("api", "version"), [("prodce", 1), ("produce", 0), ("produce", 2), ("init_producers", 1)])
def test_unknown_call_or_version_is_unsupported(api: str, version: int) -> None:
    with pytest.raises(errors.UnsupportedVersionError, match=api):
        decode_request(api, version, {})


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_have_kafkas_error(acks: int) -> None:
    with pytest.raises(errors.RequestError, match=f"acks is {acks}, expected 0, 1 or -1") as caught:
        decode_request("produce", 1, {"partitions": [], "acks": acks})
    assert caught.value.code is ErrorCode.INVALID_REQUIRED_ACKS


def test_absent_keys_have_their_defaults() -> None:
    assert decode_request("produce", 1, {"partitions": []}) == messages.ProduceRequest((), acks=-1, timeout_ms=30_000)
    assert decode_request("fetch", 1, {"partitions": [{**PARTITION, "offset": 3}]}) == messages.FetchRequest(
        (messages.FetchPartition("t", 0, 3, max_bytes=1 << 20),),
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation=messages.Isolation.READ_UNCOMMITTED,
        format=messages.Format.BATCHES,
        gaps=None,
    )
    assert decode_request("init_producer", 1, {}) == messages.InitProducerRequest(None, 60_000)
    assert decode_request("fetch_offsets", 1, {"group": "g"}) == messages.FetchOffsetsRequest("g", None, False)
    assert decode_request("commit_offsets", 1, {"group": "g", "partitions": [{**PARTITION, "offset": 3}]}) == (
        messages.CommitOffsetsRequest("g", (messages.CommittedPartition("t", 0, 3, None),), None)
    )
    assert decode_request("metadata", 1, {}) == messages.MetadataRequest(None)


@pytest.mark.parametrize(("name", "timestamp"), [("latest", -1), ("earliest", -2), ("max_timestamp", -3)])
def test_special_timestamps_have_names(name: str, timestamp: int) -> None:
    body = {"partitions": [{**PARTITION, "timestamp": name}]}
    assert decode_request("offsets_for_times", 1, body) == messages.OffsetsForTimesRequest(
        (messages.OffsetsForTimesPartition("t", 0, timestamp),)
    )


def config(count: int) -> dict[str, str]:
    return {f"k{number}": "" for number in range(count)}


@pytest.mark.parametrize(
    ("api", "make", "limit", "complaint"),
    [
        ("fetch", lambda n: {"partitions": [{**PARTITION, "offset": 0}] * n}, 10_000, r"fetch.partitions has {} entries"),
        ("commit_stage", lambda n: {**STAGE, "tasks": [{"task": "t", "partitions": []}] * n}, 10_000, r"tasks has {} entries"),
        ("alter_configs", lambda n: {"topics": [{"name": "t", "set": config(n)}]}, 1_000, r"topics\[0\].set has {} keys"),
        ("alter_configs", lambda n: {"topics": [{"name": "t", "delete": ["k"] * n}]}, 1_000, r"\[0\].delete has {} entries"),
        (
            "create_topics",
            lambda n: {"topics": [{"name": "t", "partitions": 1, "config": config(n)}]},
            1_000,
            r"topics\[0\].config has {} keys",
        ),
    ],
)
def test_one_more_than_the_limit_is_refused(
    api: str, make: Callable[[int], dict[str, Any]], limit: int, complaint: str
) -> None:
    decode_request(api, 1, make(limit))
    with pytest.raises(errors.InvalidRequestError, match=f"{complaint.format(limit + 1)}, expected at most {limit}"):
        decode_request(api, 1, make(limit + 1))


@pytest.mark.parametrize("api", messages.RESPONSES)
@OF_EACH
@given(data=st.data())
def test_responses_round_trip_and_a_client_skips_keys_it_does_not_know(api: str, data: st.DataObject) -> None:
    response = data.draw(RESPONSES[api])
    body = over_the_wire(response.to_body())
    assert response == decode_response(api, 1, body)
    add_newer_keys(body)
    assert response == decode_response(api, 1, body)


def add_newer_keys(struct: dict[str, Any]) -> None:
    """To a map and to the maps in its arrays, at any depth."""
    for values in list(struct.values()):
        for entry in values if isinstance(values, list) else ():
            if isinstance(entry, dict):
                add_newer_keys(entry)
    struct["from_the_future"] = [1]


@pytest.mark.parametrize(("key", "value"), [("next_offset", -1), ("base_offset", None), ("size_bytes", 0)])
def test_only_a_key_that_older_servers_lack_may_be_missing_in_an_answer(key: str, value: int | None) -> None:
    answers = {
        "next_offset": messages.FetchResponse((messages.FetchPartitionResponse("t", 0, next_offset=5),)),
        "base_offset": messages.ProduceResponse((messages.ProducePartitionResponse("t", 0, base_offset=5),)),
        "size_bytes": messages.StageResponse((messages.StagePartitionResponse("t", 0, size_bytes=5),)),
    }
    body = over_the_wire(answers[key].to_body())
    del body["partitions"][0][key]
    if value is None:
        with pytest.raises(errors.RemoteProtocolError, match=rf"partitions\[0\].{key} is missing"):
            decode_response(answers[key].api, 1, body)
    else:
        answer: Any = decode_response(answers[key].api, 1, body)
        assert getattr(answer.partitions[0], key) == value


def test_a_default_that_can_be_changed_is_nobody_elses() -> None:
    topics = {"topics": [{"name": "t", "partitions": 1}] * 2}
    request = decode_request("create_topics", 1, topics)
    assert isinstance(request, messages.CreateTopicsRequest)
    first, second = request.topics
    assert first.config == {}
    assert first.config is not second.config


def test_a_server_that_says_nothing_of_shared_partitions_is_understood() -> None:
    group = messages.DescribedGroup("g", None, "Empty", "classic")
    body = messages.DescribeGroupsResponse((group,)).to_body()
    del body["groups"][0]["shared"]
    assert messages.DescribeGroupsResponse.from_body(body).groups == (group,)


@structs.struct
class Marked(structs.Partition):
    marked: bool = structs.wire(kinds.BOOL, default=False)


@structs.struct
class MarkedResponse(structs.ResponseMessage):
    api = "marked"
    partitions: tuple[Marked, ...] = structs.wire([Marked])


def test_a_struct_is_written_whole_when_its_base_was_written_before() -> None:
    assert structs.Partition("t", 0).to_body() == {"topic": "t", "partition": 0}
    assert Marked("t", 0, True).to_body() == {"topic": "t", "partition": 0, "marked": True}


def test_a_value_that_was_read_is_as_frozen_and_as_equal_as_one_that_was_made() -> None:
    made = MarkedResponse((Marked("t", 0, True),))
    read = MarkedResponse.from_body(made.to_body())
    assert (read, hash(read), repr(read)) == (made, hash(made), repr(made))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        read.partitions[0].marked = False  # type: ignore[misc]


@given(error=ERRORS)
def test_round_trip_keeps_code_and_message(error: RequestError | None) -> None:
    entry = encode_error(error)
    assert error == decode_error(None if entry is None else list(entry))


@pytest.mark.parametrize(
    "error",
    [
        errors.CorruptRecordError("m"),
        errors.OffsetOutOfRangeError("m"),
        errors.UnknownTopicOrPartitionError("m"),
        errors.TopicAlreadyExistsError("m"),
        errors.RequestTimedOutError("m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_client_gets_the_class_that_the_server_raised(error: RequestError) -> None:
    entry = encode_error(error)
    assert entry is not None
    assert type(decode_error(list(entry))) is type(error)


def test_code_of_a_newer_server_becomes_unknown_server_error_and_stays_readable() -> None:
    error = decode_error([9999, "FROM_THE_FUTURE", "no idea"])
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(error) == "UNKNOWN_SERVER_ERROR: no idea (error 9999 FROM_THE_FUTURE, unknown to this client)"


@given(entry=MSGPACK_VALUES)
def test_anything_else_is_refused_with_its_type(entry: object) -> None:
    if entry is None or (isinstance(entry, list) and [type(part) for part in entry] == [int, str, str]):
        decode_error(entry)
    else:
        with pytest.raises(FieldError, match=r"error is .*, expected nil or"):
            decode_error(entry)


PLAIN: Final = [None, b"k", b"v", [["h", b""]]]


def at_once(api: str, body: Any) -> object:
    """The message, or how it is refused."""
    try:
        return messages.decode_request(api, messages.VERSION, msgpack.unpackb(msgpack.packb(body)))
    except RequestError as exc:
        return exc.code, exc.message


def in_steps(api: str, body: Any) -> object:
    """What `at_once` says, read in steps."""
    try:
        return finished(messages.decode_steps(api, messages.VERSION, msgpack.unpackb(msgpack.packb(body))))
    except RequestError as exc:
        return exc.code, exc.message


def pauses(api: str, body: Any) -> int:
    return sum(1 for _ in messages.decode_steps(api, messages.VERSION, body))


@pytest.mark.parametrize(
    "body",
    [
        {"partitions": [{"topic": "t", "partition": 0, "records": [PLAIN] * 700 + [wrong]}]}
        for wrong in (7, [], [None, 1, b""], [None, b"", b"", [["h", 1]]], [None, b"", b"", [["h", b""]] * 900 + [["h"]]])
    ]
    + [
        {"partitions": [{"topic": "t", "partition": 0, "records": []}] * 99 + [wrong]}
        for wrong in (1, {}, {"topic": "t", "partition": 0, "records": 1}, {"topic": "t", "more": 1})
    ]
    + [{"partitions": 1}, {"partitions": [1] * (MAX_PARTITIONS_PER_REQUEST + 1)}, {"unknown": 1}, {}],
)
def test_a_wrong_entry_is_refused_by_its_place(body: Any) -> None:
    refused = at_once("produce", body)
    assert isinstance(refused, tuple)
    assert in_steps("produce", body) == refused


def test_a_wrong_entry_of_a_wrong_task_is_refused_by_its_place() -> None:
    tasks = [{"task": str(number), "partitions": []} for number in range(99)]
    tasks.append({"task": "t", "partitions": [{"topic": "t"}]})
    body = {"application": "a", "version": 1, "tasks": tasks}
    refused = at_once("commit_stage", body)
    assert "commit_stage.tasks[99].partitions[0]" in str(refused)
    assert in_steps("commit_stage", body) == refused


def test_headers_configurations_and_inner_entries_count_as_steps() -> None:
    record = [None, b"k", b"v", [[f"{number}", b""] for number in range(20_000)]]
    body = {"partitions": [{"topic": "t", "partition": 0, "records": [record]}]}
    assert in_steps("produce", body) == at_once("produce", body)
    assert pauses("produce", body) >= 20_000 // RECORDS_PER_PAUSE
    config = {f"key-{number}": "value" for number in range(1000)}
    body = {"topics": [{"name": f"{number}", "partitions": 1, "config": config} for number in range(50)]}
    assert pauses("create_topics", body) >= 25
    partitions = [{"topic": "t", "partition": number, "size_bytes": 1, "crc": 0} for number in range(5000)]
    body = {"application": "a", "version": 1, "tasks": [{"task": "t", "partitions": partitions}]}
    assert pauses("commit_stage", body) >= 5000 // messages.ENTRIES_PER_PAUSE


@pytest.mark.merge
@pytest.mark.parametrize("api", REQUESTS)
@given(data=st.data())
def test_many_entries_pause_in_every_request_that_has_them(api: str, data: st.DataObject) -> None:
    body = msgpack.unpackb(msgpack.packb(data.draw(REQUESTS[api]).to_body()))
    entries = [key for key, value in body.items() if type(value) is list and value and type(value[0]) is dict]
    for key in entries:
        body[key] = [copy.deepcopy(body[key][0]) for _ in range(200)]
    assert pauses(api, body) >= len(entries) * (200 // messages.ENTRIES_PER_PAUSE)
