// Nodes, how full they are, and each GPU that is handed out in parts.
import { useMemo } from "preact/hooks";
import { useApi, useList } from "../api";
import { CopyYaml } from "../explain";
import { brief, parse, rank, show, shownAmounts } from "../quantity";
import { change, place } from "../router";
import { useStore } from "../store";
import { type Column, Table } from "../table";
import type { ClaimRow, GpuRow, NodeRow, Overview, Page, QuotaRow } from "../types";
import { Bar, Card, ClaimLink, Empty, Filter, Link, Panel, Shown, Tag, UsedBar } from "../ui";
import { mainResources } from "./overview";

function Fill({ node, name }: { node: NodeRow; name: string }) {
  const [all, used, leaving] = [node.allocatable[name], node.used[name], node.leaving[name]].map(parse) as [number, number, number];
  if (!all) return <>–</>;
  return (
    <span class="fill">
      <Bar whole={all} parts={[{ amount: used, kind: used >= all ? "full" : "used", name: "used" }, { amount: leaving, kind: "leaving", name: "leaving" }]}
        label={`${node.name}: ${show(used, name)} of ${show(all, name)} ${name} used${leaving ? `, ${show(leaving, name)} by pods that leave` : ""}`} />
      <span>{show(used, name)}/{show(all, name)}</span>
    </span>
  );
}

function Gpu({ gpu }: { gpu: GpuRow }) {
  return (
    <li class="gpu">
      <header><strong>{gpu.name}</strong><small>{gpu.model} on {gpu.node}</small></header>
      {Object.entries(gpu.capacity).map(([name, all]) => (
        <div key={name} class="fill"><small>{name}</small><UsedBar used={gpu.used[name] ?? "0"} of={all} resource={name} /><span>{show(parse(gpu.used[name]), name)}/{all}</span></div>
      ))}
      <p class="note">{gpu.claims.length ? gpu.claims.map((name, index) => <span key={name}>{index > 0 && ", "}<ClaimLink name={name} /></span>) : "free"}</p>
    </li>
  );
}

/** How much of what is free is in pieces that the largest waiting claim can use. */
function Fragmentation() {
  const found = useApi<Overview>("/overview");
  return (
    <Shown of={found} rows={2}>
      {({ resources }) => (
        <ul class="pools">
          {mainResources(resources.map((one) => one.resource)).map((name) => {
            const total = resources.find((one) => one.resource === name)!;
            const [free, usable] = [parse(total.free), parse(total.usable)];
            return (
              <li key={name}>
                <span>{name}</span>
                <Bar whole={free} label={`${name}: ${show(usable, name)} of ${show(free, name)} free are usable`} parts={[{ amount: usable, kind: "usable", name: "usable" }, { amount: free - usable, kind: "stranded", name: "in pieces that are too small" }]} />
                <span>{free ? `${Math.round((100 * (free - usable)) / free)}% in pieces too small` : "nothing free"}{total.largestClaim && <> for <ClaimLink name={total.largestClaim} /></>}</span>
              </li>
            );
          })}
        </ul>
      )}
    </Shown>
  );
}

function Details({ node, quota }: { node: NodeRow; quota: QuotaRow | undefined }) {
  const claims = useApi<Page<ClaimRow>>("/claims", { node: node.name, limit: 200 });
  return (
    <Panel name={`Node ${node.name}`} title={node.name} close={() => change({ node: "" })}>
      <p>{node.ready ? <Tag kind="good">ready</Tag> : <Tag kind="bad">not ready</Tag>} {node.pods} pods</p>
      {Object.keys(node.allocatable).sort((a, b) => rank(a) - rank(b)).map((name) => <div key={name} class="fill wide"><small title={name}>{brief(name)}</small><Fill node={node} name={name} /></div>)}
      {quota && <><h3>CPU pods on this GPU node (CrossQuota)</h3>{Object.entries(quota.resources).map(([name, one]) => <div key={name} class="fill wide"><small>{name}</small><UsedBar used={one.used} of={one.max} resource={name} /><span>{one.used}/{one.max}</span></div>)}</>}
      <h3>Claims here</h3>
      <Shown of={claims}>{({ items: all }) => { const items = all.filter((row) => row.state !== "gone"); return items.length ? <ul class="plain-list">{items.map((row) => <li key={row.uid}><ClaimLink name={`${row.namespace}/${row.name}`} /> <small>{shownAmounts(row.requests, row.gpus)}</small></li>)}</ul> : <p class="note">None.</p>; }}</Shown>
      <h3>Labels</h3>
      <ul class="plain-list">{Object.entries(node.labels).map(([name, value]) => <li key={name}><code>{name}={value}</code></li>)}</ul>
      <div class="buttons"><CopyYaml kind="Node" name={node.name} /></div>
    </Panel>
  );
}

export function NodesView() {
  const { params } = useStore(place);
  const nodes = useList<NodeRow>("/nodes");
  const gpus = useList<GpuRow>("/gpus");
  const cross = useList<QuotaRow>("/quotas", { policy: "crossquota" });
  const filter = (params.get("filter") ?? "").toLowerCase();
  const items = nodes.data?.items ?? [];
  const names = useMemo(() => [...new Set(items.flatMap((node) => Object.keys(node.allocatable)))].filter((name) => name !== "pods" && name !== "ephemeral-storage").sort((a, b) => rank(a) - rank(b) || a.localeCompare(b)), [nodes.data]);
  const shares = new Map((cross.data?.items ?? []).map((quota) => [quota.name, quota]));
  const opened = items.find((node) => node.name === params.get("node"));
  const matches = (text: string) => !filter || text.toLowerCase().includes(filter);
  const columns: Column<NodeRow>[] = [
    { name: "Node", class: "name", cell: (node) => node.name, sort: (node) => node.name },
    { name: "Health", cell: (node) => (node.ready ? <Tag kind="good">ready</Tag> : <Tag kind="bad">not ready</Tag>), sort: (node) => Number(node.ready) },
    ...names.map((name): Column<NodeRow> => ({ name: brief(name), class: rank(name) > 1 ? "optional fills" : "fills", cell: (node) => <Fill node={node} name={name} />, sort: (node) => -parse(node.used[name]) / (parse(node.allocatable[name]) || 1) })),
    ...(shares.size ? [{ name: "CPU pods", class: "optional fills", cell: (node: NodeRow) => { const one = shares.get(node.name)?.resources.cpu; return one ? <span class="fill"><UsedBar used={one.used} of={one.max} resource="cpu" /><span>{one.used}/{one.max}</span></span> : "–"; } }] : []),
    { name: "Pods", class: "number", cell: (node) => node.pods, sort: (node) => -node.pods },
  ];
  return (
    <>
      <div class="tools"><Filter value={params.get("filter") ?? ""} change={(value) => change({ filter: value })} label="Filter nodes and GPUs" /></div>
      <div class={opened ? "split" : ""}>
        <div class="main-part">
          <Card title="Nodes" aside={nodes.data && `${items.length} nodes`}>
            <Shown of={nodes} rows={6}>
              {() => <Table name="Nodes" rows={items.filter((node) => matches(`${node.name} ${Object.values(node.labels).join(" ")}`))} id={(node) => node.name} columns={columns} open={(node) => ({ node: node.name })} opened={opened?.name ?? ""}
                empty={items.length ? <Empty title="No node matches." /> : <Empty title="There are no nodes.">Without nodes nothing can start. Apply them on the page <Link view="plan">What-if and plan</Link>.</Empty>} />}
            </Shown>
          </Card>
          <Card title="GPUs handed out in parts" aside={gpus.data && `${gpus.data.items.length} GPUs`}>
            <Shown of={gpus} rows={2}>
              {(data) => {
                const shown = data.items.filter((gpu) => matches(`${gpu.name} ${gpu.node} ${gpu.model}`));
                return shown.length ? <ul class="gpus">{shown.slice(0, 200).map((gpu) => <Gpu key={gpu.name} gpu={gpu} />)}{shown.length > 200 && <li class="more">and {shown.length - 200} more: filter by node or model</li>}</ul> : <Empty title="No GPU is handed out in parts here." />;
              }}
            </Shown>
          </Card>
          <Card title="Fragmentation"><Fragmentation /></Card>
        </div>
        {opened && <Details key={opened.name} node={opened} quota={shares.get(opened.name)} />}
      </div>
    </>
  );
}
