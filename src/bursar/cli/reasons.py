"""The list of reasons, made from what the policies declare: ``python -m bursar.cli.reasons > docs/reasons.md``."""

import sys

from bursar.control.reasons import all_reasons

_START = """\
# Reasons

Every refusal and every eviction has a short, stable code: `<policy>.<rule>[.<resource>]`. You meet it in
`bursar get queue`, `bursar explain`, events, metrics, the API and scenario files. Scripts may rely on the codes;
sentences may change.

This page is made from the code: `python -m bursar.cli.reasons > docs/reasons.md`.
"""
_TITLES = {
    "trees": "Quota trees ([guide](trees.md))",
    "pools": "Quota trees over node pools ([guide](pools.md))",
    "elastic": "Elastic quotas ([guide](elastic.md))",
    "limits": "Quotas of namespaces ([guide](namespace-gpu-quota.md))",
    "nodes": "Nodes",
    "crossquota": "CPU pods on GPU nodes ([guide](crossquota.md))",
    "gpus": "GPUs in parts ([guide](namespace-gpu-quota.md))",
    "engine": "The engine",
    "control": "The control loop",
}


def page() -> str:
    parts = [_START]
    for name, reasons in all_reasons().items():
        parts += [f"\n## {_TITLES[name]}\n\n", "| reason | what it means | what to do |\n|---|---|---|\n"]
        parts += [f"| `{reason.code}` | {reason.means} | {reason.helps} |\n" for reason in reasons]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
