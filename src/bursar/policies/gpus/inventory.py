"""The inventory of GPUs: from settings to cells and accounts.

Each GPU has an account ``gpus/<name>`` whose limits are its capacity. A removed GPU on which claims count keeps its
account, without capacity, until the last of them is gone; the same GPU coming back takes it over.

A node that hands out GPUs in fractions has two sets of them: those for fractions, and those that the device plugin
hands out whole. The account ``gpus/plugin/<node>`` holds how many the plugin may hand out. A GPU that changes sides
joins the plugin's set when the last worker has left it.

Every change gives the fleet a new version.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.policies.gpus import fleet
from bursar.policies.gpus.fleet import GPUS, ONLY, POOLS, PREFIX, VERSION, Gpu, PoolCell, gpu_of
from bursar.policies.gpus.settings import (
    GPU,
    HOST,
    OPTIONS,
    POOL,
    TEMPLATE,
    GpuBody,
    GpuOptionsBody,
    HostBody,
    PoolBody,
    TemplateBody,
    is_derived,
)
from bursar.policies.placement_kit import NOTHING, REMOVED, close_if_empty, is_empty
from bursar.policies.results import Setting, SettingError
from bursar.resources import Limits

NAME: Final = "gpus"
TOPIC: Final = "nodes"  # a GPU that gets free may admit any claim that waits for a node
PLUGIN_PREFIX: Final = PREFIX + "plugin/"
PLUGIN_RESOURCE: Final = "nvidia.com/gpu"
HOSTS: Final = "gpus.hosts"  # table: node -> its HostBody
DERIVATION: Final = "gpus.derivation"  # table with one key: how GPUs are derived from nodes
TEMPLATES: Final = "gpus.templates"  # table: template -> placement mode


@final
class Inventory:
    """Writes the cells and accounts of GPUs, and keeps which node has which GPUs."""

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.by_node: Final[dict[str, dict[str, Gpu]]] = {}
        self.removed: Final[dict[str, None]] = {}  # GPUs that are gone but still have an account
        self.plugins: Final[set[str]] = set()  # accounts of GPUs meant for the plugin
        self.joining: Final[dict[str, str]] = {}  # meant for the plugin, but maybe in use by workers: name -> node
        self.closed: Final[list[str]] = []  # accounts, since somebody asked
        self.undivided: Final[set[str]] = set()  # nodes whose plugin account may have become needless

    def cell_changed(self, name: str, old: object, new: object) -> None:
        """Follows the table of GPUs."""
        before = gpu_of(name, old)
        after = gpu_of(name, new)
        if before is not None:
            del self.by_node[before.node][name]
            if not self.by_node[before.node]:
                del self.by_node[before.node]
            self.undivided.add(before.node)
        if after is not None:
            self.by_node.setdefault(after.node, {})[name] = after
        if new == REMOVED:
            self.removed[name] = None
        else:
            self.removed.pop(name, None)
        self.joining.pop(name, None)
        self.plugins.discard(PREFIX + name)
        if after is not None and after.plugin:
            self.plugins.add(PREFIX + name)
        if after is not None and after.plugin and not is_empty(self.state.accounts[PREFIX + name]):
            self.joining[name] = after.node

    def charged(self, account: Account) -> None:
        """A worker counts on a GPU: if the GPU is meant for the plugin, it has to wait for the worker."""
        if account.name in self.plugins:
            name = account.name[len(PREFIX) :]
            gpu = gpu_of(name, self.state.cell(GPUS, name))
            self.joining[name] = "" if gpu is None else gpu.node

    def plugin_charged(self, account: Account) -> None:
        """Something changed in what the device plugin hands out on a node."""
        self.undivided.add(account.name[len(PLUGIN_PREFIX) :])

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        """Returns the nodes whose GPUs changed."""
        body = setting.body
        nodes: list[str] = []
        if setting.kind == GPU:
            nodes = self._object(tx, setting, body.gpu if isinstance(body, GpuBody) else None)
        elif setting.kind == HOST:
            tx.put(NAME, HOSTS, setting.key, body.cell() if isinstance(body, HostBody) else None)
            self._derive(tx, setting.key)
            nodes = [setting.key]
        elif setting.kind == POOL:
            tx.put(NAME, POOLS, setting.key, self._pool(body) if isinstance(body, PoolBody) else None)
        elif setting.kind == TEMPLATE:
            tx.put(NAME, TEMPLATES, setting.key, body.mode if isinstance(body, TemplateBody) else None)
            self._templates(tx)
        elif setting.kind == OPTIONS:
            nodes = self._options(tx, body if isinstance(body, GpuOptionsBody) else None)
        self.renew(tx)
        return nodes

    def renew(self, tx: Transaction) -> None:
        """Gives the fleet a new version: a tuple, because views compare versions by identity."""
        old = cast("tuple[int] | None", self.state.cell(VERSION, ONLY))
        tx.put(NAME, VERSION, ONLY, (1 if old is None else old[0] + 1,))

    def _object(self, tx: Transaction, setting: Setting, gpu: Gpu | None) -> list[str]:
        name = setting.key
        if is_derived(name):
            raise SettingError(f"GPU {name}", "metadata.name", "must not contain a colon")
        old = gpu_of(name, self.state.cell(GPUS, name))
        nodes: list[str] = []
        if old is not None and (gpu is None or gpu.node != old.node):
            self._remove(tx, old)
            nodes.append(old.node)
        if gpu is not None:
            self._put(tx, gpu)
            nodes.append(gpu.node)
        for node in nodes:
            self._derive(tx, node)
        return nodes

    def _put(self, tx: Transaction, gpu: Gpu) -> None:
        account = self.state.accounts.get(PREFIX + gpu.name)
        if account is None:
            account = tx.open_account(NAME, PREFIX + gpu.name, TOPIC, True)
        tx.set_limits(account, Limits({"tflops": gpu.tflops, "vram": gpu.vram}, True))
        tx.put(NAME, GPUS, gpu.name, gpu.cell())

    def _remove(self, tx: Transaction, gpu: Gpu) -> None:
        account = self.state.accounts[PREFIX + gpu.name]
        tx.set_limits(account, NOTHING)
        tx.put(NAME, GPUS, gpu.name, REMOVED)
        if close_if_empty(tx, NAME, GPUS, gpu.name, [account]):
            self.closed.append(account.name)

    def _derive(self, tx: Transaction, node: str) -> None:
        """The derived GPUs of a node, unless it has GPU objects."""
        known = self.by_node.get(node, {})
        wanted: dict[str, Gpu] = {}
        if not [name for name in known if not is_derived(name)]:
            wanted = self._derived(node)
        for name in sorted(known):
            if is_derived(name) and name not in wanted:
                self._remove(tx, known[name])
        for name in sorted(wanted):
            self._put(tx, wanted[name])

    def _derived(self, node: str) -> dict[str, Gpu]:
        """The GPUs derived from the node; none if it hands out no fractions."""
        host = self.state.cell(HOSTS, node)
        if host is None:
            return {}
        count, model, vram, shared, _, _, usual = cast("tuple[int, str, int, int, int, int, tuple[int, int]]", host)
        derivation = self.state.cell(DERIVATION, ONLY) or (False, ())
        every, models = cast("tuple[bool, tuple[tuple[str, tuple[int, int]], ...]]", derivation)
        if shared < 0:
            shared = count if every else 0
        if shared <= 0:
            return {}
        tflops, memory = dict(models).get(model, usual)
        vram = vram or memory
        found: dict[str, Gpu] = {}
        for index in range(count):
            name = f"{node}:{index}"
            found[name] = Gpu(name, node, tflops, vram, "", model, "NVIDIA", index, True, index >= shared)
        return found

    def _options(self, tx: Transaction, body: GpuOptionsBody | None) -> list[str]:
        tx.put(NAME, fleet.OPTIONS, ONLY, None if body is None else body.options.cell())
        tx.put(NAME, DERIVATION, ONLY, None if body is None else body.cell())
        nodes = sorted(self.state.cells(HOSTS))
        for node in nodes:
            self._derive(tx, node)
        return nodes

    def _pool(self, pool: PoolBody) -> PoolCell:
        mode = cast("str | None", self.state.cell(TEMPLATES, pool.template))
        return (mode or "", pool.default, pool.template, pool.oversell)

    def _templates(self, tx: Transaction) -> None:
        for name, cell in sorted(self.state.cells(POOLS).items()):
            _, default, template, oversell = cast("PoolCell", cell)
            tx.put(NAME, POOLS, name, self._pool(PoolBody(template, default, oversell)))

    # The plugin's set

    def share_out(self, tx: Transaction, node: str) -> bool:
        """Sets how many GPUs of the node the device plugin may hand out; returns whether the node is newly divided."""
        gpus = list(self.by_node.get(node, {}).values())
        account = self.state.accounts.get(PLUGIN_PREFIX + node)
        divided = self._is_divided(node)
        if account is None and not divided:
            return False
        opened = account is None
        if account is None:
            account = tx.open_account(NAME, PLUGIN_PREFIX + node, TOPIC, True)
        if not divided and is_empty(account):
            tx.close_account(account)
            self.closed.append(account.name)
            return False
        whole = [gpu for gpu in gpus if gpu.plugin and is_empty(self.state.accounts[PREFIX + gpu.name])]
        tx.set_limits(account, Limits({PLUGIN_RESOURCE: len(whole)}, True))
        return opened

    def settle(self, tx: Transaction) -> None:
        """Closes removed GPUs that are empty, and gives empty GPUs that are meant for the plugin to its set."""
        for name in sorted(self.removed):
            if close_if_empty(tx, NAME, GPUS, name, [self.state.accounts[PREFIX + name]]):
                self.closed.append(PREFIX + name)
                self.renew(tx)
        for name in sorted(self.joining):
            if is_empty(self.state.accounts[PREFIX + name]):
                self.share_out(tx, self.joining.pop(name))
        for node in sorted(self.undivided):
            self._close_plugin_account(tx, node)

    def _close_plugin_account(self, tx: Transaction, node: str) -> None:
        """A node that hands out no fractions any more needs no account of the plugin's set, once that is empty."""
        account = self.state.accounts.get(PLUGIN_PREFIX + node)
        if account is None or self._is_divided(node) or account.used.vector():
            self.undivided.discard(node)
        elif not account.busy.vector():
            tx.close_account(account)
            self.closed.append(account.name)
            self.undivided.discard(node)

    def _is_divided(self, node: str) -> bool:
        return any(not gpu.plugin for gpu in self.by_node.get(node, {}).values())
