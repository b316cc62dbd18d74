from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner
from triolog.tools.spark.init import FILES, PipelineExistsError, command, write_pipeline


def test_the_pipeline_has_every_file_of_the_template_and_no_mark_left(tmp_path: Path) -> None:
    folder = tmp_path / "my-pipeline"
    result = CliRunner().invoke(command, [str(folder), "--server", "10.0.0.7:9095", "--topic", "t", "--target", "u"])
    assert result.exit_code == 0, result.output
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files.keys() == set(FILES.values())
    assert not [name for name, text in files.items() if "@" in text.replace("@dp.", "")]
    assert 'name: "my_pipeline"' in files["spark-pipeline.yml"]
    assert f"storage: {(folder / 'storage').as_uri()}" in files["spark-pipeline.yml"]
    assert f"spark.sql.warehouse.dir {folder}/warehouse\n" in files["conf/spark-defaults.conf"]
    for line in ('SERVERS = "10.0.0.7:9095"', 'SOURCE_TOPIC = "t"', 'TARGET_TOPIC = "u"'):
        assert line in files["transformations/departures.py"]
    for name in ("run.py", "transformations/departures.py"):
        ast.parse(files[name])


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(PipelineExistsError, match="is not empty"):
        write_pipeline(tmp_path, servers="a:1", topic="t", target="u")
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["2024", "on", "null", "1e3", "my-pipeline", "ärger"])
def test_the_name_is_a_text_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    """Unquoted, YAML would make a number of 2024 and true of on."""
    write_pipeline(tmp_path / name, servers="a:1", topic="t", target="u")
    [line] = [line for line in (tmp_path / name / "spark-pipeline.yml").read_text().splitlines() if line.startswith("name:")]
    assert line == f'name: "{name.replace("-", "_")}"'


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(command, [str(tmp_path / "file" / "pipeline")])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert result.output.startswith(f"Error: {tmp_path / 'file'}")


@pytest.mark.parametrize("topic", ['a"b', "a\nb", ""])
def test_what_would_end_a_string_is_refused(tmp_path: Path, topic: str) -> None:
    result = CliRunner().invoke(command, [str(tmp_path / "new"), "--topic", topic])
    assert result.exit_code == 2
    assert not (tmp_path / "new").exists()
