"""A CRD as a template of the chart: the same CRD, with what Helm fills in."""

import pytest

from tools.generate import chart_template

CRD = "# Generated.\nkind: CustomResourceDefinition\nmetadata:\n  name: a.b\nspec:\n  group: b\n"


def test_labels_and_what_keeps_it_stand_after_the_name_and_the_spec_is_as_it_was() -> None:
    lines = chart_template(CRD).splitlines()
    assert lines[1:4] == ["{{- if .Values.crds.enabled }}", "kind: CustomResourceDefinition", "metadata:"]
    assert lines[4:6] == ["  name: a.b", "  labels:"]
    assert "    helm.sh/resource-policy: keep" in lines
    assert lines[-3:] == ["spec:", "  group: b", "{{- end }}"]


def test_braces_in_a_description_are_no_template() -> None:
    assert '  description: a {{ "{{" }}b}}\n' in chart_template(CRD + "  description: a {{b}}\n")


@pytest.mark.parametrize("text", ["", "kind: A\n", "metadata:\n  labels: {}\nspec:\n"])
def test_what_is_no_crd_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no CRD"):
        chart_template(text)
