"""The table of options: what it refuses, what it warns about, and that it is whole."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from triolog.tools.spark.option_table.kafka_clients import SECURITY
from triolog.tools.spark.option_table.option import Meaning, Option, OptionError, OptionTable
from triolog.tools.spark.option_table.reading import BATCH_ONLY, READING, STREAM_ONLY
from triolog.tools.spark.option_table.writing import WRITING

TABLE = OptionTable.of(
    "a read",
    [
        Option("topicName", Meaning.SAME, "The topic."),
        Option("kafka.fetch", Meaning.UNUSED, "nothing fetches"),
        Option("path", Meaning.REFUSED, "it has no path"),
    ],
    {"queryname"},
)


def test_an_option_is_accepted_refused_with_its_reason_or_unknown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TABLE.check({"topicname": "a", "queryname": "b"})
    for given, message in (
        ({"path": "a"}, "option path is refused: it has no path"),
        ({"kafka.fetch": "a"}, "option kafka.fetch is refused: nothing fetches. Leave it out, or set strictOptions to false"),
        ({"topicnam": "a"}, "unknown option topicnam. Did you mean topicName?"),
        ({"wholly": "a"}, "unknown option wholly. A read takes topicName"),
    ):
        with pytest.raises(OptionError, match=message.replace("?", "[?]")):
            TABLE.check(given)


def test_strict_options_false_turns_all_but_refused_options_into_one_warning() -> None:
    lenient = {"strictoptions": "false", "kafka.fetch": "a"}
    table = OptionTable.of("a read", [*TABLE.options.values(), Option("strictOptions", Meaning.OWN, "")])
    with pytest.warns(UserWarning, match=r"no effect: kafka\.fetch, wholly$"):
        table.check(lenient | {"wholly": "b"})
    with pytest.raises(OptionError, match="path is refused"):
        table.check(lenient | {"path": "b"})


@pytest.mark.parametrize("table", [READING, WRITING], ids=["reading", "writing"])
def test_each_option_without_an_effect_is_refused_by_its_name(table: OptionTable) -> None:
    unaccepted = [option for option in table.options.values() if not option.meaning.is_accepted]
    assert len(unaccepted) > 100
    for option in unaccepted:
        with pytest.raises(OptionError, match=rf"^option {re.escape(option.name)} is refused: {re.escape(option.text)}"):
            table.check({option.name.lower(): "1"})


def test_a_name_is_in_a_table_once() -> None:
    with pytest.raises(ValueError, match="option PATH is in the table of a read twice"):
        OptionTable.of("a read", [Option("path", Meaning.SAME, ""), Option("PATH", Meaning.SAME, "")])


def test_every_option_says_what_it_means_and_a_difference_where_it_is_one() -> None:
    for option in (*READING.options.values(), *WRITING.options.values()):
        assert option.text, option
        assert bool(option.difference) == (option.meaning is Meaning.DIFFERENT), option
    assert {*STREAM_ONLY, *BATCH_ONLY} <= {*READING.names}


def test_no_setting_of_security_is_ever_ignored() -> None:
    translated = {option.name for option in SECURITY}
    for table in (READING, WRITING):
        for option in table.options.values():
            if option.name.startswith(("kafka.ssl.", "kafka.sasl.", "kafka.security.")) and option.name not in translated:
                assert option.meaning is Meaning.REFUSED, option


def test_the_page_has_every_option() -> None:
    page = (Path(__file__).parents[4] / "docs/spark.md").read_text(encoding="utf-8")
    for option in (*READING.options.values(), *WRITING.options.values()):
        assert f"`{option.name}`" in page
