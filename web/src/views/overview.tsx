// Who has what: GPUs used, reserved, free and usable; teams and pools; what changed; what needs a look.
import { info, useApi, useList } from "../api";
import { brief, parse, rank, show, shownAmounts, when } from "../quantity";
import { useStore } from "../store";
import { since } from "../time";
import type { Activity, Change, NodeRow, Overview, PoolTotal, QueueRow, QuotaRow, ResourceTotal, TeamTotal } from "../types";
import { Bar, Card, ClaimLink, Empty, Link, Shown, UsedBar } from "../ui";
import { type Column, Table } from "../table";
import { place } from "../router";
import { quotaLabel } from "./quota-tree";

/** The resources that this is about: GPUs, and parts of GPUs; cpu and memory only where there is nothing else. */
export function mainResources(names: string[]): string[] {
  const gpus = names.filter((name) => rank(name) < 2);
  return (gpus.length ? gpus : names).sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

function Total({ total }: { total: ResourceTotal }) {
  const name = total.resource;
  const [all, used, reserved, free, usable] = [total.allocatable, total.used, total.reserved, total.free, total.usable].map(parse) as [number, number, number, number, number];
  const figures: [string, number, string][] = [["used", used, "used"], ["reserved", reserved, "reserved"], ["free", free, "free"], ["usable", usable, "usable"]];
  return (
    <section class="card total">
      <header><h2>{name}</h2><div class="aside"><strong>{all ? Math.round((100 * (used + reserved)) / all) : 0}%</strong> taken</div></header>
      <Bar whole={all} label={`${name}: ${show(used, name)} used, ${show(reserved, name)} reserved, ${show(usable, name)} of ${show(free, name)} free are usable, of ${show(all, name)}`}
        parts={[{ amount: used, kind: "used", name: "used" }, { amount: reserved, kind: "reserved", name: "reserved" }, { amount: usable, kind: "usable", name: "usable" }, { amount: free - usable, kind: "stranded", name: "free, not usable" }]} />
      <dl class="figures">
        {figures.map(([label, amount, kind]) => (
          <div key={label}><dt><i class={`dot ${kind}`} aria-hidden="true" />{label}</dt><dd>{show(amount, name)}</dd></div>
        ))}
      </dl>
      <p class="note">
        {total.largestClaim ? <>Usable: in pieces of {total.largest} on one {rank(name) === 1 ? "GPU" : "node"}, as <ClaimLink name={total.largestClaim} /> needs.</> : "Nothing waits for it."}
      </p>
    </section>
  );
}

function Teams({ teams, resources }: { teams: TeamTotal[]; resources: string[] }) {
  const main = resources[0] ?? "";
  const most = Math.max(1, ...teams.map((team) => parse(team.used[main]) + parse(team.wanted[main])));
  const columns: Column<TeamTotal>[] = [
    { name: "Team", cell: (team) => <Link view="claims" params={{ namespace: team.namespace }}>{team.namespace || "none"}</Link>, sort: (team) => team.namespace },
    {
      name: `${brief(main)}: used, waiting`, class: "wide-bar", sort: (team) => -parse(team.used[main]),
      cell: (team) => (
        <Bar whole={most} label={`${show(parse(team.used[main]), main)} ${main} used, ${show(parse(team.wanted[main]), main)} waiting`}
          parts={[{ amount: parse(team.used[main]), kind: "used", name: "used" }, { amount: parse(team.wanted[main]), kind: "wanted", name: "waiting" }]} />
      ),
    },
    { name: "Uses", cell: (team) => shownAmounts(pick(team.used, resources)) || "–", class: "amounts" },
    { name: "Running", cell: (team) => team.running, sort: (team) => -team.running, class: "number" },
    { name: "Waiting", cell: (team) => team.waiting || "–", sort: (team) => -team.waiting, class: "number" },
    { name: "Borrowing", cell: (team) => team.borrowing || "–", sort: (team) => -team.borrowing, class: "number optional" },
  ];
  return <Table name="Teams" rows={teams} id={(team) => team.namespace} columns={columns} empty={<Empty title="No team has a claim yet." />} />;
}

function pick(amounts: Record<string, string>, names: string[]): Record<string, string> {
  return Object.fromEntries(Object.entries(amounts).filter(([name]) => names.includes(name)));
}

function Pools({ pools, resources }: { pools: PoolTotal[]; resources: string[] }) {
  const rows = pools.flatMap((pool) => resources.filter((name) => parse(pool.allocatable[name])).map((name) => ({ pool, name })));
  if (!rows.length) return <Empty title="No node has a GPU." />;
  return (
    <ul class="pools">
      {rows.map(({ pool, name }) => (
        <li key={`${pool.name} ${name}`}>
          <span>{pool.name || "no pool"} <small>{pool.ready < pool.nodes ? `${pool.ready} of ${pool.nodes} nodes ready` : pool.nodes === 1 ? "1 node" : `${pool.nodes} nodes`}</small></span>
          <UsedBar used={pool.used[name] ?? "0"} of={pool.allocatable[name]!} resource={name} />
          <span class="number">{show(parse(pool.used[name]), name)} / {show(parse(pool.allocatable[name]), name)} {brief(name)}</span>
        </li>
      ))}
    </ul>
  );
}

function Alerts() {
  const quotas = useList<QuotaRow>("/quotas");
  const nodes = useList<NodeRow>("/nodes");
  const queue = useList<QueueRow>("/queue");
  const known = useStore(info);
  const alerts: [string, preact.ComponentChildren][] = [];
  if (known?.readOnly) alerts.push(["bad", "The server takes no changes any more; /readyz says why."]);
  for (const node of nodes.data?.items ?? []) if (!node.ready) alerts.push(["bad", <>Node <Link view="nodes" params={{ node: node.name }}>{node.name}</Link> is not ready.</>]);
  for (const quota of quotas.data?.items ?? []) {
    if (!quota.exceeded && !quota.message) continue;
    const label = <Link view="quotas" params={{ quota: quota.account || quotaLabel(quota) }}>{quotaLabel(quota)}</Link>;
    alerts.push([quota.exceeded ? "bad" : "warn", <>{label}: {quota.message || "uses more than its max"}</>]);
  }
  for (const row of queue.data?.items ?? []) if (row.never) alerts.push(["warn", <><ClaimLink name={`${row.namespace}/${row.name}`} /> cannot start as things are: {row.message}</>]);
  if (!quotas.data) return <Shown of={quotas} rows={2}>{() => null}</Shown>;
  if (!queue.data) return <Shown of={queue} rows={2}>{() => null}</Shown>;
  if (!alerts.length) return <Empty title="Nothing needs a look." />;
  return (
    <ul class="alerts">
      {alerts.slice(0, 8).map(([kind, text], index) => <li key={index} class={kind}>{text}</li>)}
      {alerts.length > 8 && <li class="more">and {alerts.length - 8} more</li>}
    </ul>
  );
}

function LastHour() {
  const at = useStore(place).params.get("at") ?? "";
  const activity = useApi<Activity>("/activity", { from: "-1h", to: at, at: "" });
  const changes = useApi<{ items: Change[] }>(at ? null : "/changes", { limit: 60, at: "" });
  const sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
  const others = (changes.data?.items ?? []).filter((change) => change.objects.some((one) => one.kind !== "Pod")).slice(0, 5);
  return (
    <Shown of={activity} rows={2}>
      {(data) => (
        <>
          <dl class="figures hour">
            {([["submitted", data.submitted], ["started", data.started], ["ended", data.finished], ["evicted", data.evicted]] as const).map(([name, values]) => (
              <div key={name}><dt>{name}</dt><dd class={name === "evicted" && sum(values) ? "warn" : ""}>{sum(values)}</dd></div>
            ))}
          </dl>
          {others.length > 0 && (
            <ul class="changes">
              {others.map((change) => {
                const objects = change.objects.filter((one) => one.kind !== "Pod");
                return <li key={change.id}><Link view="plan" params={{ change: String(change.id) }}>Change {change.id}</Link> {change.verb} of {objects.slice(0, 2).map((one) => `${one.kind.split(".")[0]} ${one.key}`).join(", ")}{objects.length > 2 ? ` and ${objects.length - 2} more` : ""} <small title={when(change.moment.time)}>{since(change.moment.time)}</small></li>;
              })}
            </ul>
          )}
        </>
      )}
    </Shown>
  );
}

export function OverviewView() {
  const found = useApi<Overview>("/overview");
  return (
    <Shown of={found} rows={8}>
      {(data) => {
        const resources = mainResources(data.resources.map((total) => total.resource));
        if (!data.resources.length && !data.teams.length)
          return <Empty title="There is nothing here yet.">Apply nodes and quotas, for example on the page <Link view="plan">What-if and plan</Link>, or start a demo with <code>bursar serve --demo</code>.</Empty>;
        return (
          <>
            <div class="totals">{resources.map((name) => <Total key={name} total={data.resources.find((one) => one.resource === name)!} />)}</div>
            <div class="columns">
              <div>
                <Card title="Teams"><Teams teams={data.teams} resources={resources} /></Card>
                <Card title="The last hour" aside={<Link view="history">History</Link>}><LastHour /></Card>
              </div>
              <div>
                <Card title="Needs a look"><Alerts /></Card>
                <Card title="Pools"><Pools pools={data.pools} resources={resources} /></Card>
              </div>
            </div>
          </>
        );
      }}
    </Shown>
  );
}
