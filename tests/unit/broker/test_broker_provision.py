"""The layout as JetStream configurations."""

from exo.broker.config import sum_limits
from exo.broker.provision import SMALLEST, configure_bucket, configure_stream, find_changes, list_configs
from exo.streams.layout import BUCKETS, COMMANDS, EVENTS, LEASE, SNAPSHOT, STREAMS, TOKENS, Storage


def test_the_whole_layout_is_listed() -> None:
    names = [config["name"] for config in list_configs()]
    assert names == [
        *(spec.name for spec in STREAMS),
        *(f"KV_{spec.name}" for spec in BUCKETS),
        "OBJ_exo_blobs",
    ]


def test_streams_are_what_the_layout_says() -> None:
    tokens = configure_stream(TOKENS)
    assert (tokens["storage"], tokens["no_ack"], tokens["discard"], tokens["allow_direct"]) == (
        "memory",
        True,
        "old",
        True,
    )
    assert tokens["max_age"] == 1800 * 10**9
    assert configure_stream(COMMANDS)["retention"] == "workqueue"
    assert configure_stream(EVENTS)["deny_delete"] is True


def test_only_buckets_with_a_marker_keep_ttls() -> None:
    assert configure_bucket(LEASE)["allow_msg_ttl"] is True
    assert "allow_msg_ttl" not in configure_bucket(SNAPSHOT)


def test_only_files_are_scaled_to_the_disk() -> None:
    scaled = {config["name"]: config for config in list_configs(scale=0.1)}
    whole = {config["name"]: config for config in list_configs()}
    assert scaled["EXO_TOKENS"] == whole["EXO_TOKENS"]
    assert scaled["EXO_EVENTS"]["max_bytes"] == whole["EXO_EVENTS"]["max_bytes"] // 10
    assert scaled["EXO_COMMANDS"]["max_bytes"] == SMALLEST
    files = [config["max_bytes"] for config in whole.values() if config["storage"] == "file"]
    assert sum(files) == sum_limits(Storage.FILE)


def test_the_log_may_begin_later_than_one() -> None:
    firsts = {config["name"]: config.get("first_seq") for config in list_configs(first_sequence=500)}
    assert firsts.pop("EXO_EVENTS") == 500
    assert set(firsts.values()) == {None}


def test_only_differences_are_changed() -> None:
    wanted = next(config for config in list_configs(first_sequence=500) if config["name"] == "EXO_EVENTS")
    # The server leaves out what is false, and adds what we do not set.
    existing = {key: value for key, value in wanted.items() if value is not False and key != "first_seq"}
    assert find_changes(wanted, existing | {"max_msgs": -1}) == {}
    assert find_changes(wanted | {"max_bytes": 7}, existing) == {"max_bytes": 7}
