"""The CRDs as templates of the Helm chart, made from the same document as the files in `crds/`.

Helm installs a chart's own `crds/` folder once and never upgrades it; templates are upgraded, and the resource policy keeps them on
uninstall. What is in the values, and what they mean, is the chart's business.
"""

from tidegate.resources.kinds import GROUP, Kind

CHART = "charts/tidegate"

_HEADER = "{{- /* Generated from operator/tidegate/resources; do not edit: change the models and run `make generate`. */}}\n"
_METADATA = """\
  labels:
    {{- include "tidegate.labels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""


def chart_path(kind: Kind) -> str:
    """Where the template of a kind is, relative to the checkout."""
    return f"{CHART}/templates/crds/{GROUP}_{kind.plural}.yaml"


def chart_template(crd_yaml: str) -> str:
    """The template that renders to the CRD `crd_yaml` with the release's labels, or to nothing when `crds.enabled` is false.

    Raises ValueError when the text has no name to put the labels after. Braces that Helm would read are quoted for it.
    """
    body = "".join(line for line in crd_yaml.splitlines(keepends=True) if not line.startswith("#"))
    head, name, rest = body.partition("metadata:\n")
    named, separator, spec = rest.partition("spec:\n")
    if not name or not separator or not named.startswith("  name: "):
        raise ValueError("this is no CRD with a name and a spec")
    return f"{_HEADER}{{{{- if .Values.crds.enabled }}}}\n{head}{name}{named}{_METADATA}{separator}{_quoted(spec)}{{{{- end }}}}\n"


def _quoted(text: str) -> str:
    return text.replace("{{", '{{ "{{" }}')
