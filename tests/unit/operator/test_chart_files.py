"""The generated files of charts: descriptions from comments, and what is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rlscaler_dev.generate import chart as files
from rlscaler_dev.generate.cli import chart
from rlscaler_operator.exceptions import OperatorError

VALUES = """\
# Something about the file.
image:
  # -- Where it is.
  repository: here
  # -- Its tag; empty = the
  # chart's.
  tag: ""
# -- Labels of the pods.
labels: {team: a}
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "image": {"type": "object", "properties": {"repository": {"type": "string"}, "tag": {"type": "string"}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "global": {"type": "object"},
    },
}


def test_comments_above_keys_are_their_descriptions():
    assert [(value.name, value.default, value.description) for value in files.read_values(VALUES)] == [
        ("image.repository", "here", "Where it is."),
        ("image.tag", "", "Its tag; empty = the chart's."),
        ("labels", {"team": "a"}, "Labels of the pods."),
    ]


def test_key_without_description_is_named():
    with pytest.raises(OperatorError, match=r"image\.tag has no description"):
        files.read_values("image:\n  tag: 1\n")


def test_descriptions_go_into_the_schema_and_replace_older_ones():
    once = files.described(json.dumps(SCHEMA), files.read_values(VALUES))
    found = json.loads(once)["properties"]["image"]["properties"]["tag"]
    assert found == {"description": "Its tag; empty = the chart's.", "type": "string"}
    assert files.described(once, files.read_values(VALUES)) == once
    again = files.described(once, files.read_values(VALUES.replace("Where it is", "Where")))
    assert json.loads(again)["properties"]["image"]["properties"]["repository"]["description"] == "Where."


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (VALUES + "# -- More.\nmore: 1\n", "knows no more: add it"),
        (VALUES.partition("# -- Labels")[0], "labels: not in values.yaml"),
    ],
)
def test_key_of_one_file_alone_is_named(text, what):
    with pytest.raises(OperatorError, match=what):
        files.described(json.dumps(SCHEMA), files.read_values(text))


def test_shared_definitions_are_inlined():
    """Each value that uses one has a description of its own."""
    image = {"type": "object", "properties": {"repository": {"type": "string"}, "tag": {"type": "string"}}}
    shared = {**SCHEMA, "properties": {**SCHEMA["properties"], "image": {"$ref": "#/$defs/image"}}}
    text = json.dumps({**shared, "$defs": {"image": image}})
    assert files.described(text, files.read_values(VALUES)) == files.described(
        json.dumps(SCHEMA), files.read_values(VALUES)
    )


def test_readme_has_a_row_for_each_value():
    text = files.readme(f"# Title\n\nText.\n\n{files.MARKER}\n", files.read_values(VALUES), json.dumps(SCHEMA))
    assert text.startswith("# Title\n\n<!-- Generated")
    assert '| `image.repository` | string | `"here"` | Where it is. |' in text
    assert "| `labels` | map |" in text
    assert files.MARKER not in text
    with pytest.raises(OperatorError, match=r"README\.md\.in"):
        files.readme("# Title\n", [], "{}")


def test_check_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "admission").mkdir()
    (tmp_path / "admission" / "rlscaler.yaml").write_text("kind: A\n")
    folder = tmp_path / "helm" / "rlscaler"
    folder.mkdir(parents=True)
    (folder / "Chart.yaml").write_text("name: rlscaler\n")
    (folder / "values.yaml").write_text(VALUES)
    (folder / "values.schema.json").write_text(json.dumps(SCHEMA))
    (folder / "README.md.in").write_text(f"# Title\n\n{files.MARKER}\n")
    runner = CliRunner()
    assert runner.invoke(chart, ["generate"]).exit_code == 0
    assert runner.invoke(chart, ["check"]).exit_code == 0
    (tmp_path / "admission" / "rlscaler.yaml").write_text("kind: B\n")
    (folder / "values.yaml").write_text(VALUES.replace("here", "there"))
    stale = runner.invoke(chart, ["check"])
    assert stale.exit_code == 1
    assert "helm/rlscaler/files/admission/rlscaler.yaml is not what is generated now" in stale.output
    assert "helm/rlscaler/README.md is not what is generated now: run 'rlscaler chart generate'" in stale.output
