from hypothesis import given
from hypothesis import strategies as st

from tidegate.queues.names import LONGEST_PREFIX, LevelTopic, QueueNames

NAMES = QueueNames("shop.unpaid")

prefixes = st.from_regex(r"[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+){0,3}", fullmatch=True)


@given(prefixes, st.integers(1, 999_999_999), st.integers(0, 9999))
def test_a_level_topic_is_found_by_its_name(prefix: str, delay_seconds: int, number: int) -> None:
    names = QueueNames(prefix)
    topic = names.level_topic(delay_seconds, number)
    assert names.parse_level(topic.name) == LevelTopic(prefix, delay_seconds, number)
    assert names.is_own(topic.name)


@given(prefixes, st.text(st.characters(codec="ascii"), max_size=20))
def test_only_the_spelling_of_a_level_is_a_level(prefix: str, rest: str) -> None:
    parsed = QueueNames(prefix).parse_level(prefix + rest)
    assert parsed is None or parsed.name == prefix + rest


def test_other_topics_are_not_levels() -> None:
    for name in (
        "shop.unpaid",
        "shop.unpaid.dead",
        "shop.unpaid.control",
        "shop.unpaid.5",
        "shop.unpaid.05.0",
        "shop.unpaid.5.00",
        "shop.unpaid.0.0",
        "shop.unpaid.5.0.1",
        "shop.unpaid.5.0\n",
        "shopXunpaid.5.0",
        "other.shop.unpaid.5.0",
        "shop.unpaid.٥.0",
    ):
        assert NAMES.parse_level(name) is None, name


def test_queues_with_one_prefix_inside_the_other_share_no_topic() -> None:
    outer, inner = QueueNames("shop"), QueueNames("shop.5")
    topic = inner.level_topic(10, 0).name
    assert outer.parse_level(topic) is None
    assert outer.dead_topic != inner.dead_topic


def test_what_is_part_of_the_queue_is_never_a_target() -> None:
    assert all(
        NAMES.is_own(t) for t in (NAMES.dead_topic, NAMES.control_topic, NAMES.cancelled_topic)
    )
    assert not NAMES.is_own("orders.due")


def test_every_name_of_the_longest_prefix_fits_into_kafka() -> None:
    names = QueueNames("p" * LONGEST_PREFIX)
    assert len(names.level_topic(999_999_999, 9999).name) == 249


def test_names_are_those_of_the_documentation() -> None:
    assert NAMES.dead_topic == "shop.unpaid.dead"
    assert NAMES.control_topic == "shop.unpaid.control"
    assert NAMES.group == "shop.unpaid.forwarders"
    assert NAMES.members_group == "shop.unpaid.members"
    assert NAMES.transactional_id("pod-1-x7") == "shop.unpaid.forwarders.pod-1-x7"
    assert NAMES.zookeeper_root == "/tidegate/queues/shop.unpaid"
    assert NAMES.level_topic(600, 3).name == "shop.unpaid.600.3"
