"""`bursar controller`: Bursar on Kubernetes, beside the cluster's own scheduler."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from bursar.cli import exit_codes
from bursar.cli.connection import fail


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: as kubectl, or the pod's own account.")
@click.option("--context", default="", help="The context of the kubeconfig.")
@click.option("--namespace", default="bursar-system", show_default=True, help="Bursar's own namespace.")
@click.option("--identity", default="", help="The name of this replica; must be unique.")
@click.option("--lease-duration", type=click.FloatRange(min=0.1), default=15.0, show_default=True)
@click.option("--renew-deadline", type=click.FloatRange(min=0.1), default=10.0, show_default=True)
@click.option("--retry-period", type=click.FloatRange(min=0.05), default=2.0, show_default=True)
@click.option("--host", default="0.0.0.0", show_default=True, help="Where health, metrics and webhook listen.")  # noqa: S104 in a pod
@click.option("--health-port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@click.option("--webhook-port", type=click.IntRange(0, 65535), default=9443, show_default=True)
@click.option("--no-webhook", is_flag=True, help="Serve no webhook.")
@click.option("--crossquota", is_flag=True, help="CrossQuota governs all namespaces but the exempt ones.")
@click.option("--exempt", "exempt", multiple=True, metavar="NAMESPACE", help="A namespace that CrossQuota exempts.")
@click.option("--keep-managed-fields", is_flag=True,
              help="The webhook's gate leaves pods the list of who wrote which field.")  # fmt: skip
@click.option("--pin-all", is_flag=True, help="Pin every pod to the node that was decided, where that can be judged.")
@click.option("--pin-patience", type=click.FloatRange(min=1), default=60.0, show_default=True,
              help="Seconds until a pod that the scheduler cannot place is taken back.")  # fmt: skip
@click.option("--compare-every", type=click.FloatRange(min=0.5), default=30.0, show_default=True,
              help="Seconds between two comparisons of ledger and cluster.")  # fmt: skip
@click.option("--journal", type=click.Path(file_okay=False, path_type=Path),
              help="A folder for the journal of each term, for `bursar audit`.")  # fmt: skip
@click.option(
    "--dry-run",
    is_flag=True,
    help="Send every write for the server to check, and not to keep; take no part in the election.",
)
@click.option("--shadow", is_flag=True, help="Decide and report beside what decides now; write nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def controller(  # noqa: PLR0913, PLR0917 an option each
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    identity: str,
    lease_duration: float,
    renew_deadline: float,
    retry_period: float,
    host: str,
    health_port: int,
    webhook_port: int,
    no_webhook: bool,
    crossquota: bool,
    exempt: tuple[str, ...],
    keep_managed_fields: bool,
    pin_all: bool,
    pin_patience: float,
    compare_every: float,
    journal: Path | None,
    dry_run: bool,
    shadow: bool,
    verbose: bool,
) -> None:
    """Admit the pods of a Kubernetes cluster by their quotas, until interrupted.

    Run as many replicas as you like: one leads, the others wait. Exit code 0: ended by a signal; 1: the cluster or a
    port cannot be used; 2: the command line is wrong.
    """
    import asyncio
    import functools

    from bursar.kube.admission.predicate import AdmissionOptions
    from bursar.kube.client.errors import ConfigError
    from bursar.kube.client.kubeconfig import load
    from bursar.kube.client.lease import Timing
    from bursar.kube.controller.leader_term import TermOptions
    from bursar.kube.controller.main import RunOptions, run
    from bursar.kube.controller.mirror import MirrorOptions
    from bursar.kube.controller.replica import ProcessOptions, own_identity
    from bursar.kube.http_server import ListenError
    from bursar.store.store import journals_in

    if shadow and dry_run:
        raise click.UsageError("--shadow sends nothing, --dry-run everything, to be checked: choose one of them")
    tries = shadow or dry_run  # its log is its only result
    level = logging.INFO if verbose or tries else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        timing = Timing(lease_duration, renew_deadline, retry_period)
        config = load(str(kubeconfig or ""), context)
    except (ConfigError, ValueError) as error:
        fail(str(error))
    account = f"system:serviceaccount:{namespace}:bursar"
    admission = AdmissionOptions(
        namespace=namespace,
        accounts=(account,),
        everywhere=crossquota,
        exempt_namespaces=exempt,
        keep_managed_fields=keep_managed_fields,
    )
    mirror = MirrorOptions(admission, shadow=shadow, pin_all=pin_all)
    term = TermOptions(
        mirror,
        dry_run=dry_run,
        pin_patience=round(pin_patience * 1000),
        compared_every=compare_every,
        journal=None if journal is None else functools.partial(journals_in, journal),
    )
    process = ProcessOptions(term, timing, namespace, identity=identity or own_identity())
    options = RunOptions(process, host, health_port, None if no_webhook or tries else webhook_port)
    try:
        asyncio.run(run(config, options, lambda line: click.echo(line, err=True)))
    except ListenError as error:
        fail(f"{error}\n  other addresses: --host, --health-port and --webhook-port", exit_codes.FAILED)
