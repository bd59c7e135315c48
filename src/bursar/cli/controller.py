"""`bursar controller`: Bursar on Kubernetes, beside the cluster's own scheduler; and `bursar answers`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from bursar.cli import exit_codes
from bursar.cli.connection import fail

if TYPE_CHECKING:
    from bursar.kube.controller.leader_term import JournalKeeper


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
@click.option("--spare", "spared", multiple=True, default=("gpu-operator",), show_default=True, metavar="NAMESPACE",
              help="A namespace whose pods are never governed.")  # fmt: skip
@click.option("--scheduler", "schedulers", multiple=True, metavar="NAME",
              help="Another scheduler that runs in the cluster: pods that name it are not reported.")  # fmt: skip
@click.option("--forget-managed-fields", is_flag=True,
              help="The webhook's gate takes the list of who wrote which field from pods.")  # fmt: skip
@click.option("--pin-all", is_flag=True, help="Pin every pod to the node that was decided, where that can be judged.")
@click.option("--pin-patience", type=click.FloatRange(min=1), default=60.0, show_default=True,
              help="Seconds until a pod that the scheduler cannot place is taken back.")  # fmt: skip
@click.option("--compare-every", type=click.FloatRange(min=0.5), default=30.0, show_default=True,
              help="Seconds between two comparisons of ledger and cluster.")  # fmt: skip
@click.option("--journal", type=click.Path(file_okay=False, path_type=Path),
              help="A folder for the journal of each term, for `bursar audit`.")  # fmt: skip
@click.option("--history", type=click.Path(file_okay=False, path_type=Path),
              help="A folder that all replicas share, for the history of all leaders.")  # fmt: skip
@click.option("--history-size", metavar="SIZE", default="2Gi", show_default=True,
              help="Delete the oldest history beyond this.")  # fmt: skip
@click.option(
    "--dry-run",
    is_flag=True,
    help="Send every write for the server to check, and not to keep; take no part in the election.",
)
@click.option("--shadow", is_flag=True, help="Decide and report beside what decides now; write nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def controller(**given: Any) -> None:  # noqa: ANN401 each option as it is declared above
    """Admit the pods of a Kubernetes cluster by their quotas, until interrupted.

    Run as many replicas as you like: one leads, the others wait. Exit code 0: ended by a signal; 1: the cluster or a
    port cannot be used; 2: the command line is wrong.
    """
    import asyncio

    from bursar.kube.admission.predicate import TERM_ANNOTATION, AdmissionOptions
    from bursar.kube.client.election import ClusterAccess
    from bursar.kube.client.errors import ConfigError
    from bursar.kube.client.kubeconfig import load
    from bursar.kube.client.lease import Timing
    from bursar.kube.controller.leader_term import TermOptions
    from bursar.kube.controller.main import RunOptions, run
    from bursar.kube.controller.mirror import MirrorOptions
    from bursar.kube.controller.replica import ProcessOptions, own_identity
    from bursar.kube.http_server import ListenError

    chosen = SimpleNamespace(**given)
    if chosen.shadow and chosen.dry_run:
        raise click.UsageError("--shadow sends nothing, --dry-run everything, to be checked: choose one of them")
    tries = chosen.shadow or chosen.dry_run  # its log is its only result
    level = logging.INFO if chosen.verbose or tries else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        timing = Timing(chosen.lease_duration, chosen.renew_deadline, chosen.retry_period)
        config = load(str(chosen.kubeconfig or ""), chosen.context)
    except (ConfigError, ValueError) as error:
        fail(str(error))
    admission = AdmissionOptions(
        namespace=chosen.namespace,
        accounts=(f"system:serviceaccount:{chosen.namespace}:bursar",),
        everywhere=chosen.crossquota,
        exempt_namespaces=chosen.exempt,
        spared_namespaces=tuple(name for name in chosen.spared if name),
        running_schedulers=chosen.schedulers,
        forget_managed_fields=chosen.forget_managed_fields,
    )
    mirror = MirrorOptions(admission, shadow=chosen.shadow, pin_all=chosen.pin_all)
    term = TermOptions(
        mirror,
        dry_run=chosen.dry_run,
        pin_patience=round(chosen.pin_patience * 1000),
        compared_every=chosen.compare_every,
        journal=_journal(chosen),
    )
    access = ClusterAccess(str(chosen.kubeconfig or ""), chosen.context, TERM_ANNOTATION, level == logging.INFO)
    identity = chosen.identity or own_identity()
    process = ProcessOptions(term, timing, chosen.namespace, identity=identity, access=access)
    options = RunOptions(
        process, chosen.host, chosen.health_port, None if chosen.no_webhook or tries else chosen.webhook_port
    )
    try:
        asyncio.run(run(config, options, lambda line: click.echo(line, err=True)))
    except ListenError as error:
        fail(f"{error}\n  other addresses: --host, --health-port and --webhook-port", exit_codes.FAILED)


def _journal(chosen: SimpleNamespace) -> Callable[[int], JournalKeeper] | None:
    """What keeps the journal of a term, if anything does."""
    import functools

    from bursar.quantity import UNIT, QuantityError, parse
    from bursar.store.committer import journals_in
    from bursar.store.segments import writer_in

    if chosen.history is not None and chosen.journal is not None:
        raise click.UsageError("--history keeps the journals of all terms: give it, or --journal")
    if chosen.history is None:
        return None if chosen.journal is None else functools.partial(journals_in, chosen.journal)
    try:
        most = parse(chosen.history_size, UNIT)
    except QuantityError as error:
        raise click.UsageError(f"--history-size: {error}") from None
    return functools.partial(writer_in, chosen.history, most)


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: as kubectl, or the pod's own account.")
@click.option("--context", default="", help="The context of the kubeconfig.")
@click.option("--namespace", default="bursar-system", show_default=True, help="Bursar's own namespace.")
@click.option("--host", default="0.0.0.0", show_default=True, help="Where answers, health and metrics listen.")  # noqa: S104 in a pod
@click.option("--port", type=click.IntRange(0, 65535), default=9444, show_default=True)
@click.option("--health-port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@click.option("--crossquota", is_flag=True, help="As the controller has it.")
@click.option("--exempt", "exempt", multiple=True, metavar="NAMESPACE", help="As the controller has it.")
@click.option("--spare", "spared", multiple=True, default=("gpu-operator",), show_default=True, metavar="NAMESPACE",
              help="As the controller has it.")  # fmt: skip
@click.option("--pin-all", is_flag=True, help="As the controller has it.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def answers(**given: Any) -> None:  # noqa: ANN401 each option as it is declared above
    """Answer questions about a Kubernetes cluster, until interrupted.

    It follows the cluster and the controller and writes nothing. It serves explanations, lists, what-if and plans to
    users whom the API server lets through. Run as many replicas as you like.

    Exit code 0: ended by a signal; 1: the cluster or a port cannot be used; 2: the command line is wrong.
    """
    import asyncio

    from bursar.answers.process import AnswersOptions, run
    from bursar.kube.admission.predicate import AdmissionOptions
    from bursar.kube.client.errors import ConfigError
    from bursar.kube.client.kubeconfig import load
    from bursar.kube.controller.mirror import MirrorOptions
    from bursar.kube.http_server import ListenError

    chosen = SimpleNamespace(**given)
    level = logging.INFO if chosen.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("bursar.kube.controller.mirror").setLevel(logging.ERROR)  # the controller reports the same
    try:
        config = load(str(chosen.kubeconfig or ""), chosen.context)
    except (ConfigError, ValueError) as error:
        fail(str(error))
    admission = AdmissionOptions(
        namespace=chosen.namespace,
        accounts=(f"system:serviceaccount:{chosen.namespace}:bursar",),
        everywhere=chosen.crossquota,
        exempt_namespaces=chosen.exempt,
        spared_namespaces=tuple(name for name in chosen.spared if name),
    )
    mirror = MirrorOptions(admission, pin_all=chosen.pin_all)
    options = AnswersOptions(mirror, chosen.host, chosen.port, chosen.health_port)
    try:
        asyncio.run(run(config, options, lambda line: click.echo(line, err=True)))
    except ListenError as error:
        fail(f"{error}\n  other addresses: --host, --port and --health-port", exit_codes.FAILED)
