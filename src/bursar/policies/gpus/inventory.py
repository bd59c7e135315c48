"""The inventory of GPUs: from settings to cells and accounts.

Each GPU has an account ``gpus/<name>`` whose limits are its capacity. A removed GPU on which claims count keeps its
account, without capacity, and what it had, until the last of them is gone; the same GPU coming back takes it over.

A node that hands out GPUs in fractions has two sets of them: those for fractions, and those that the device plugin
hands out whole. The account ``gpus/plugin/<node>`` holds how many units the plugin may hand out. A GPU that changes
sides joins the plugin's set when the last worker has left it.

The plugin chooses GPUs by itself. If it hands out more than its set has, GPUs for fractions that are empty are *lent*
to it, the last ones first, until it hands out fewer again: they take no workers meanwhile. Where the GPUs are objects,
their status says which ones the plugin uses. There the plugin may begin on a node without workers, and until the
status tells, all empty GPUs of the node are lent.

On a node of HAMi the account ``gpus/plugin/<node>`` holds the memory and cores of all its GPUs together.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.objects.hami_register import CORES, SlicedGpus
from bursar.policies.gpus import fleet
from bursar.policies.gpus.fleet import GONE, GPUS, LENT, ONLY, POOLS, PREFIX, Fleet, Gpu, PoolCell, gpu_of
from bursar.policies.gpus.published import SLICE, SLICES, PublishedGpus, SliceBody, slice_node
from bursar.policies.gpus.settings import (
    GPU,
    HOST,
    NO_OFFER,
    OPTIONS,
    PLUGIN_RESOURCES,
    POOL,
    TEMPLATE,
    Derivation,
    GpuBody,
    GpuOptionsBody,
    HostBody,
    PoolBody,
    TemplateBody,
    derivation_of,
    host_of,
    is_derived,
)
from bursar.policies.placement_kit import NOTHING, REMOVED, close_if_empty, is_empty
from bursar.policies.results import Setting, SettingError
from bursar.resources import NO_LIMITS, Limits, dimension

NAME: Final = "gpus"
TOPIC: Final = "nodes"  # a GPU that gets free may admit any claim that waits for a node
PLUGIN_PREFIX: Final = PREFIX + "plugin/"
HOSTS: Final = "gpus.hosts"  # table: node -> its HostBody
DERIVATION: Final = "gpus.derivation"  # table with one key: how GPUs are derived from nodes
TEMPLATES: Final = "gpus.templates"  # table: template -> placement mode


@final
class Inventory:
    """Writes the cells and accounts of GPUs."""

    def __init__(self, state: State, view: Fleet) -> None:
        self.state: Final = state
        self.by_node: Final = view.by_node
        self.lent: Final = view.lent
        self.removed: Final[dict[str, None]] = {}  # GPUs that are gone but still have an account
        self.closed: Final[list[str]] = []  # accounts, since they were last asked for
        self.node_of: Final[dict[str, str]] = {}  # by account of a GPU
        self.plugins: Final[set[str]] = set()  # accounts of GPUs meant for the plugin
        self.objects: Final[dict[str, int]] = {}  # by node: how many GPU objects
        self.divided: Final[
            dict[str, int]
        ] = {}  # by node with GPUs for fractions, or that may still have workers: how many
        self.sliced: Final[dict[str, SlicedGpus]] = {}  # nodes of HAMi
        self.published: Final = PublishedGpus()
        self.offering: Final[set[str]] = set()  # nodes whose device plugin hands out GPUs
        self.in_use: Final[set[str]] = set()  # nodes on which claims count in the plugin's set
        self.unsettled: Final[dict[str, None]] = {}  # nodes whose sets may have changed
        self.derivation: Derivation = Derivation()

    def gpu_changed(self, name: str, old: object, new: object) -> None:
        """Follows the table of GPUs."""
        account = PREFIX + name
        before = gpu_of(name, old)
        after = gpu_of(name, new)
        self.node_of.pop(account, None)
        self.plugins.discard(account)
        for gpu, sign in ((before, -1), (after, 1)):
            if gpu is not None:
                self.unsettled[gpu.node] = None
                if not is_derived(name):
                    _count(self.objects, gpu.node, sign)
                if not gpu.plugin or is_derived(name):
                    _count(self.divided, gpu.node, sign)
        if after is not None:
            self.node_of[account] = after.node
            if after.plugin:
                self.plugins.add(account)
        if new == REMOVED:
            self.removed[name] = None
        else:
            self.removed.pop(name, None)

    def host_changed(self, node: str) -> None:
        self.unsettled[node] = None
        host = self.host(node)
        if host.slicing is None:
            self.sliced.pop(node, None)
        else:
            self.sliced[node] = host.slicing
        if host.offer() is NO_OFFER:
            self.offering.discard(node)
        else:
            self.offering.add(node)

    def derivation_changed(self) -> None:
        self.derivation = derivation_of(self.state.cell(DERIVATION, ONLY))

    def is_marked(self, node: str) -> bool:
        """Whether the status of its GPU objects says which of them the device plugin uses."""
        return node in self.objects and node in self.offering

    def charged(self, account: Account) -> None:
        """Usage of a GPU or of a plugin's set changed: the sets follow where that may matter."""
        if account.name.startswith(PLUGIN_PREFIX):
            node = account.name[len(PLUGIN_PREFIX) :]
            self.unsettled[node] = None
            if plugin_use(account) > 0:
                self.in_use.add(node)
            else:
                self.in_use.discard(node)
            return
        node = self.node_of.get(account.name, "")
        if node in self.in_use or account.name in self.plugins or self.is_marked(node):
            self.unsettled[node] = None

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        """Returns the nodes that the setting may change."""
        body = setting.body
        nodes: list[str] = []
        if setting.kind == GPU:
            nodes = self._object(tx, setting, body.gpu if isinstance(body, GpuBody) else None)
        elif setting.kind == HOST:
            nodes = self._host(tx, setting.key, body if isinstance(body, HostBody) else None)
        elif setting.kind == SLICE:
            nodes = self._slice(tx, setting.key, body if isinstance(body, SliceBody) else None)
        elif setting.kind == POOL:
            tx.put(NAME, POOLS, setting.key, self._pool(body) if isinstance(body, PoolBody) else None)
        elif setting.kind == TEMPLATE:
            tx.put(NAME, TEMPLATES, setting.key, body.mode if isinstance(body, TemplateBody) else None)
            self._templates(tx)
        elif setting.kind == OPTIONS:
            nodes = self._options(tx, body if isinstance(body, GpuOptionsBody) else None)
        return nodes

    def _host(self, tx: Transaction, node: str, body: HostBody | None) -> list[str]:
        if body is not None:
            body.published = self.published.of(node)
        cell = None if body is None else body.cell()
        if cell == self.state.cell(HOSTS, node):
            return []
        tx.put(NAME, HOSTS, node, cell)
        self._derive(tx, node)
        return [node]

    def _slice(self, tx: Transaction, name: str, body: SliceBody | None) -> list[str]:
        old = self.state.cell(SLICES, name)
        tx.put(NAME, SLICES, name, None if body is None else body.cell())
        nodes = {slice_node(old)}
        if body is not None:
            nodes.add(body.node)
        known = [node for node in sorted(nodes) if self.state.cell(HOSTS, node) is not None]
        return [changed for node in known for changed in self._host(tx, node, self.host(node))]

    def host(self, node: str) -> HostBody:
        return host_of(self.state.cell(HOSTS, node))

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
        tx.put(NAME, GONE, gpu.name, None)

    def _remove(self, tx: Transaction, gpu: Gpu) -> None:
        account = self.state.accounts[PREFIX + gpu.name]
        tx.set_limits(account, NOTHING)
        tx.put(NAME, GPUS, gpu.name, REMOVED)
        tx.put(NAME, GONE, gpu.name, gpu.cell())
        tx.put(NAME, LENT, gpu.name, None)
        self._close_if_empty(tx, gpu.name)

    def _close_if_empty(self, tx: Transaction, name: str) -> None:
        if close_if_empty(tx, NAME, GPUS, name, [self.state.accounts[PREFIX + name]]):
            tx.put(NAME, GONE, name, None)
            self.closed.append(PREFIX + name)

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
        """The GPUs derived from the node; none if it hands out no fractions, and no worker is left from before."""
        host = self.host(node)
        fractions, whole, _ = host.split(self.derivation.every)
        if fractions <= 0 and not self._has_workers(node):
            return {}
        offer = host.offer()
        models = self.derivation.models
        tflops, vram = offer.gpu(models)
        found: dict[str, Gpu] = {}
        for index in range(fractions + whole):
            name = f"{node}:{index}"
            gpu = Gpu(name, node, tflops, vram, "", offer.model, "NVIDIA", index, True, index >= fractions)
            if index < len(host.published):
                one = host.published[index]
                gpu.tflops, gpu.vram, gpu.model, gpu.uuid = one.tflops(models), one.vram, one.model, one.uuid
            found[name] = gpu
        return found

    def _has_workers(self, node: str) -> bool:
        for name in self.by_node.get(node, {}):
            if is_derived(name) and not is_empty(self.state.accounts[PREFIX + name]):
                return True
        return False

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

    def units(self, node: str) -> list[tuple[str, tuple[int, int]]]:
        """What a unit of each resource of the node stands for, by its labels or else by its largest GPU."""
        most = (0, 0)
        for gpu in self.by_node.get(node, {}).values():
            if not is_derived(gpu.name):
                most = max(most[0], gpu.tflops), max(most[1], gpu.vram)
        models = self.derivation.models
        slices = self.derivation.slices
        known = [("", most), ("slices", (slices.memory, slices.cores) if node in self.sliced else (-1, -1))]
        return [*known, *[(one.resource, one.unit(models)) for one in self.host(node).described() if one.count > 0]]

    # The plugin's set

    def has_set(self, node: str) -> bool:
        """Whether what the device plugin may hand out on the node is limited."""
        return node in self.divided or node in self.sliced

    def share_out(self, tx: Transaction, node: str) -> None:
        """Sets how much the device plugin may hand out on the node."""
        account = self.state.accounts.get(PLUGIN_PREFIX + node)
        limited = self.has_set(node)
        if account is None and not limited:
            return
        if account is None:
            account = tx.open_account(NAME, PLUGIN_PREFIX + node, TOPIC, True)
        if not limited:
            if is_empty(account):
                tx.close_account(account)
                self.closed.append(account.name)
            else:
                tx.set_limits(account, NO_LIMITS)
            return
        if node in self.sliced:
            tx.set_limits(account, self.plugin_limits(node))
            return
        offer = self.host(node).offer()
        gpus = self._lend(tx, node, -(-plugin_use(account) // offer.replicas))
        tx.set_limits(account, Limits({offer.resource or PLUGIN_RESOURCES[0]: gpus * offer.replicas}, True))

    def _lend(self, tx: Transaction, node: str, taken: int) -> int:
        """Lends as many empty GPUs as the plugin takes beyond its set; returns how many GPUs it may hand out."""
        gpus = list(self.by_node.get(node, {}).values())
        gpus.sort(key=lambda gpu: (-gpu.index, gpu.name))
        busy = [gpu for gpu in gpus if not is_empty(self.state.accounts[PREFIX + gpu.name])]
        whole = [gpu for gpu in gpus if gpu.plugin and gpu not in busy]
        free = [gpu for gpu in gpus if not gpu.plugin and gpu.usable and gpu not in busy]
        marked = self.is_marked(node)
        over = max(taken - len(whole), 0)
        lent = free if marked and over > 0 else free[:over]
        for gpu in gpus:
            tx.put(NAME, LENT, gpu.name, node if gpu in lent else None)
        opens = marked and not [gpu for gpu in busy if not gpu.plugin]
        return len(whole) + len(free if opens else lent)

    def plugin_limits(self, node: str) -> Limits:
        """What the device plugin could hand out on the node if all GPUs were empty."""
        slicing = self.sliced.get(node)
        if slicing is not None:
            return Limits({"vram": slicing.vram, CORES: slicing.cores}, True)
        offer = self.host(node).offer()
        opens = self.is_marked(node)
        gpus = [gpu for gpu in self.by_node.get(node, {}).values() if gpu.plugin or (opens and gpu.usable)]
        return Limits({offer.resource or PLUGIN_RESOURCES[0]: len(gpus) * offer.replicas}, True)

    def settle(self, tx: Transaction) -> None:
        """Closes removed GPUs that are empty, and brings the two sets of nodes up to date."""
        for name in sorted(self.removed):
            self._close_if_empty(tx, name)
        nodes = sorted(self.unsettled)
        self.unsettled.clear()
        for node in nodes:
            if self.host(node).split(self.derivation.every)[0] <= 0:
                self._derive(tx, node)  # it has no GPUs for fractions, except those that workers have not left
            self.share_out(tx, node)


def _count(counts: dict[str, int], node: str, step: int) -> None:
    left = counts.get(node, 0) + step
    if left:
        counts[node] = left
    else:
        del counts[node]


def plugin_use(account: Account) -> int:
    """How many units the device plugin hands out."""
    return sum([account.used.get(dimension(name).index) for name in PLUGIN_RESOURCES])
