// All claims, and the story of one: what was decided about it, why it was evicted, and by which other claim.
import { useMemo } from "preact/hooks";
import { useApi, useList } from "../api";
import { CopyYaml, Explain } from "../explain";
import { shownAmounts, when } from "../quantity";
import { change, place } from "../router";
import { useStore } from "../store";
import { type Column, Table } from "../table";
import { since } from "../time";
import type { ClaimRow, DecisionRow, Moment, Page, QuotaRow } from "../types";
import { Card, ClaimLink, Empty, Filter, Link, Panel, Select, Shown, Tag } from "../ui";
import { quotaLabel } from "./quota-tree";

const PHASES = ["Pending", "Running", "Terminating", "Succeeded", "Evicted"];

function keyOf(row: { namespace: string; name: string }): string {
  return row.namespace ? `${row.namespace}/${row.name}` : row.name;
}

function Phase({ row }: { row: ClaimRow }) {
  const kind = row.leaving || row.phase === "Terminating" ? "warn" : { Running: "good", Evicted: "bad", Pending: "wait" }[row.phase] ?? "plain";
  return <Tag kind={kind}>{row.state === "held" ? "Held" : row.phase === "Pending" && row.state !== "pending" ? "Starting" : row.phase}</Tag>;
}

const DID: Record<string, string> = {
  submit: "Submitted", observe: "Seen", release: "Left", admitted: "Admitted", held: "Held a place", waiting: "Has to wait",
  never: "Cannot start as things are", evicted: "Evicted", released: "Left", adjust: "Changed",
};

function line(row: DecisionRow, name: string): { title: string; kind: string } {
  if (row.victims.includes(name)) return { title: "Evicted", kind: "bad" };
  if (row.cause === "observe") return { title: `Seen: ${row.subjects[1] ?? "changed"}`, kind: row.subjects[1] === "running" ? "good" : "plain" };
  const word = row.outcome || row.cause;
  return { title: DID[word] ?? word, kind: { admitted: "good", evicted: "bad", waiting: "wait", never: "wait", held: "warn" }[word] ?? "plain" };
}

export function Story({ name }: { name: string }) {
  const at = useStore(place).params.get("at") ?? "";
  const before = /^\d+$/.test(at) ? Number(at) + 1 : 0;
  const found = useApi<{ items: DecisionRow[] }>(`/decisions`, { claim: name, limit: 100, ...(before ? { before } : {}), at: "" });
  return (
    <Shown of={found} rows={4}>
      {({ items }) => items.length ? (
        <ol class="story">
          {[...items].reverse().map((row) => {
            const { title, kind } = line(row, name);
            const by = row.victims.includes(name) ? row.claim : row.by;
            return (
              <li key={row.seq} class={kind}>
                <time dateTime={row.time} title={`Record ${row.seq}`}>{when(row.time)}</time>
                <strong>{title}</strong>{row.node && row.claim === name && <> on <Link view="nodes" params={{ node: row.node }}>{row.node}</Link></>}
                {by && by !== name && <> for <ClaimLink name={by} /></>}
                {row.claim === name && row.victims.length > 0 && <> in place of {row.victims.map((one, index) => <span key={one}>{index > 0 && ", "}<ClaimLink name={one} /></span>)}</>}
                {row.message && row.claim === name && <p>{row.message}</p>}
                <Link view="claims" params={{ claim: name, at: String(row.seq) }} class="small">as it was then</Link>
              </li>
            );
          })}
        </ol>
      ) : <p class="note">Nothing was decided about it yet.</p>}
    </Shown>
  );
}

/** A borrowing claim sits on what these quotas lend. */
function Lenders({ row }: { row: ClaimRow }) {
  const quotas = useList<QuotaRow>(row.borrowing ? "/quotas" : null);
  const own = quotas.data?.items.find((quota) => row.quotas.includes(quota.account) && Object.values(quota.resources).some((one) => Number.parseFloat(one.borrowed) > 0));
  const lenders = quotas.data?.items.filter((quota) => own && quota.policy === own.policy && quota.tree === own.tree && Object.values(quota.resources).some((one) => Number.parseFloat(one.lent) > 0)) ?? [];
  if (!row.borrowing) return null;
  return (
    <p class="reason warn">
      Over quota: it runs on what {lenders.length ? <>{lenders.slice(0, 6).map((quota, index) => <span key={quotaLabel(quota)}>{index > 0 && ", "}<Link view="quotas" params={{ quota: quota.account }}>{quotaLabel(quota)}</Link></span>)} lend{lenders.length === 1 ? "s" : ""}</> : "others lend"}, and may be evicted when they need it.
    </p>
  );
}

function Details({ name }: { name: string }) {
  const found = useApi<ClaimRow>(`/claims/${name.includes("/") ? name.split("/").map(encodeURIComponent).join("/") : `-/${encodeURIComponent(name)}`}`);
  return (
    <Panel name={`Claim ${name}`} title={name} close={() => change({ claim: "" })}>
      <Shown of={found}>
        {(row) => (
          <>
            <p class="facts-line"><Phase row={row} /> {row.node && <>on <Link view="nodes" params={{ node: row.node }}>{row.node}</Link></>} <span>{shownAmounts(row.requests, row.gpus)}</span></p>
            <Lenders row={row} />
            {row.waitsFor.length > 0 && <p class="reason warn">Waits until {row.waitsFor.map((one, index) => <span key={one}>{index > 0 && ", "}<ClaimLink name={one} /></span>)} left.</p>}
            {row.state === "gone" ? <>{row.message && <p class="reason no">{row.message}</p>}<CopyYaml kind="Pod" name={name} /></> : <Explain name={name} fixes={row.phase === "Pending"} />}
          </>
        )}
      </Shown>
      <h3>Its story</h3>
      <Story name={name} />
    </Panel>
  );
}

const columnsAt = (moment: Moment | undefined): Column<ClaimRow>[] => [
  { name: "Claim", class: "name", cell: (row) => <span title={keyOf(row)}>{keyOf(row)}</span>, sort: keyOf },
  { name: "Phase", cell: (row) => <><Phase row={row} />{row.borrowing && <Tag kind="borrowed">over quota</Tag>}</>, sort: (row) => row.phase },
  { name: "Has", class: "amounts", cell: (row) => shownAmounts(row.requests, row.gpus) || "nothing" },
  { name: "Node", cell: (row) => row.node || "–", sort: (row) => row.node, class: "optional" },
  { name: "Quotas", cell: (row) => row.quotaNames.join(", ") || "–", class: "optional message", sort: (row) => row.quotaNames.join() },
  { name: "Priority", cell: (row) => row.priority, sort: (row) => -row.priority, class: "number optional" },
  { name: "Since", cell: (row) => <span title={when(row.created)}>{since(row.created, moment)}</span>, sort: (row) => row.created, class: "since" },
  { name: "Why", cell: (row) => <span title={row.message}>{row.message}</span>, class: "message optional" },
];

export function ClaimsView() {
  const { params } = useStore(place);
  const [phase, namespace, node, quota] = ["phase", "namespace", "node", "quota"].map((name) => params.get(name) ?? "") as [string, string, string, string];
  const found = useList<ClaimRow>("/claims", { phase, namespace, node, quota });
  const filter = (params.get("filter") ?? "").toLowerCase();
  const borrowing = params.get("borrowing") === "yes";
  const rows = useMemo(() => (found.data?.items ?? []).filter((row) => (!borrowing || row.borrowing) && (!filter || `${keyOf(row)} ${row.node} ${row.message} ${row.quotaNames.join(" ")}`.toLowerCase().includes(filter))), [found.data, filter, borrowing]);
  const columns = useMemo(() => columnsAt(found.data?.moment), [found.data]);
  const opened = params.get("claim") ?? "";
  const chips = [["namespace", namespace], ["node", node], ["quota", quota]].filter(([, value]) => value) as [string, string][];
  return (
    <>
      <div class="tools">
        <Filter value={params.get("filter") ?? ""} change={(value) => change({ filter: value })} label="Filter claims" />
        <Select label="Phase" value={phase} change={(value) => change({ phase: value })} options={[["", "All"], ...PHASES.map((one): [string, string] => [one, one])]} />
        <label class="check"><input type="checkbox" checked={borrowing} onChange={(event) => change({ borrowing: event.currentTarget.checked ? "yes" : "" })} />over quota only</label>
        {chips.map(([name, value]) => <button key={name} type="button" class="chip" aria-label={`Do not filter by ${name}`} onClick={() => change({ [name]: "" })}>{name}: {value} ×</button>)}
      </div>
      <div class={opened ? "split" : ""}>
        <Card title="Claims" aside={found.data && `${rows.length.toLocaleString("en")} of ${(found.data.items.length + found.data.remaining).toLocaleString("en")}`}>
          <Shown of={found} rows={8}>
            {(data: Page<ClaimRow>) => <Table name="Claims" rows={rows} id={(row) => row.uid} columns={columns} open={(row) => ({ claim: keyOf(row) })} opened={rows.find((row) => keyOf(row) === opened)?.uid ?? ""}
              empty={data.items.length ? <Empty title="No claim matches." /> : <Empty title="There are no claims.">A claim is a pod that asks for resources. Try one on the page <Link view="plan">What-if and plan</Link>.</Empty>} />}
          </Shown>
        </Card>
        {opened && <Details key={opened} name={opened} />}
      </div>
    </>
  );
}
