"""``python -m bursar.kube.admission``: write the admission manifests, with other names where wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bursar.kube.admission.manifests import write
from bursar.kube.admission.predicate import AdmissionOptions

_DEFAULTS = AdmissionOptions()


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default="deploy/admission", show_default=True)
@click.option("--namespace", default=_DEFAULTS.namespace, show_default=True, help="Bursar's own namespace.")
@click.option("--account", "accounts", multiple=True, default=_DEFAULTS.accounts, help="Users that are Bursar.")
@click.option("--scheduler", "schedulers", multiple=True, default=_DEFAULTS.schedulers, help="Users that may bind.")
@click.option("--exempt", "exempt_namespaces", multiple=True, help="Namespaces that CrossQuota exempts.")
@click.option(
    "--spare",
    "spared_namespaces",
    multiple=True,
    default=_DEFAULTS.spared_namespaces,
    show_default=True,
    help="Namespaces whose pods are never governed.",
)
@click.option("--label", "more_labels", multiple=True, help="More pod labels that quotas read.")
@click.option(
    "--reinvocation-policy",
    "reinvocation",
    type=click.Choice(["Never", "IfNeeded"]),
    default=_DEFAULTS.reinvocation,
    show_default=True,
    help="Whether the gate policy is reinvoked for pods of governed namespaces after webhooks changed them.",
)
@click.option(
    "--forget-managed-fields", is_flag=True, help="Take the list of who wrote which field from governed pods."
)
def main(out: Path, **given: Any) -> None:  # noqa: ANN401 fields of AdmissionOptions
    """Write the admission policies and webhook configurations as YAML."""
    for path in write(out, AdmissionOptions(**given)):
        click.echo(path)


if __name__ == "__main__":
    main()
