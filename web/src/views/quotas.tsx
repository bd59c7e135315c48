// All quotas of all dialects in one hierarchy, and who lends to whom.
import { useMemo, useState } from "preact/hooks";
import { useApi, useList } from "../api";
import { CheckTree, CopyYaml } from "../explain";
import { brief, parse, rank, show } from "../quantity";
import { change, place } from "../router";
import { useStore } from "../store";
import { type Column, Table } from "../table";
import type { QuotaAmounts, QuotaExplanation, QuotaRow } from "../types";
import { Bar, Card, ClaimLink, Copy, Empty, Filter, Link, Panel, Select, Shown, Tag } from "../ui";
import { type Branch, type Loan, hierarchy, loans, quotaLabel, whole } from "./quota-tree";

interface Line { id: string; branch: Branch; resource: string; first: boolean }

function QuotaBar({ amounts, resource }: { amounts: QuotaAmounts; resource: string }) {
  if (!amounts.min && !amounts.max && !amounts.runtime) return <small>no limit</small>;
  const [used, borrowed, min, runtime] = [amounts.used, amounts.borrowed, amounts.min, amounts.runtime].map(parse) as [number, number, number, number];
  const words = [`${amounts.used} used`, amounts.min && `min ${amounts.min}`, amounts.runtime && `runtime ${amounts.runtime}`, amounts.max && `max ${amounts.max}`, borrowed && `${amounts.borrowed} borrowed`, parse(amounts.lent) && `${amounts.lent} lent`];
  return (
    <Bar whole={whole(amounts)} label={`${resource}: ${words.filter(Boolean).join(", ")}`}
      parts={[{ amount: used - borrowed, kind: "used", name: "used" }, { amount: borrowed, kind: "borrowed", name: "borrowed" }, { amount: parse(amounts.lent), kind: "lent", name: "lent" }]}
      marks={[{ at: min, kind: "min", name: "min" }, { at: runtime, kind: "runtime", name: "runtime" }]} />
  );
}

function flat(branches: Branch[], closed: Set<string>, wanted: (branch: Branch) => boolean, resource: string): Line[] {
  const found: Line[] = [];
  const visit = (branch: Branch): boolean => {
    const at = found.length;
    const names = branch.quota ? Object.keys(branch.quota.resources).filter((name) => !resource || name === resource).sort((a, b) => rank(a) - rank(b)) : [];
    const lines: Line[] = (names.length ? names : [""]).map((name, index) => ({ id: `${branch.id} ${name}`, branch, resource: name, first: index === 0 }));
    found.push(...lines);
    let kept = Boolean(branch.quota) && wanted(branch) && (!resource || names.length > 0);
    const begun = found.length;
    for (const child of branch.children) kept = visit(child) || kept;
    if (closed.has(branch.id)) found.length = begun;
    if (!kept) found.length = at;
    return kept;
  };
  for (const branch of branches) visit(branch);
  return found;
}

const SORTS: [string, string][] = [["", "As in the hierarchy"], ["name", "Name"], ["used", "Used"], ["share", "Fullest"], ["borrowed", "Borrowed"]];

function sorted(branches: Branch[], by: string, resource: string): Branch[] {
  const figure = (branch: Branch, side: "used" | "borrowed") => {
    const amounts = branch.quota?.resources ?? {};
    return Object.entries(amounts).filter(([name]) => !resource || name === resource).reduce((sum, [, one]) => sum + parse(one[side]), 0);
  };
  const share = (branch: Branch) => Math.max(0, ...Object.entries(branch.quota?.resources ?? {}).filter(([name]) => !resource || name === resource).map(([, one]) => (whole(one) ? parse(one.used) / whole(one) : 0)));
  const value = (branch: Branch) => (by === "share" ? share(branch) : figure(branch, by === "used" ? "used" : "borrowed"));
  const order = [...branches];
  if (by === "name") order.sort((a, b) => a.label.localeCompare(b.label, "en", { numeric: true }));
  else if (by) order.sort((a, b) => value(b) - value(a));
  return order.map((branch) => ({ ...branch, children: sorted(branch.children, by, resource) }));
}

/** Sorting is for the figures of the moment at which it was asked for: rows do not jump while these change. */
function useSorted(branches: Branch[], by: string, resource: string): Branch[] {
  const [memory] = useState<{ key: string; places: Map<string, number> }>({ key: "", places: new Map() });
  return useMemo(() => {
    const key = `${by} ${resource}`;
    const result = sorted(branches, by, resource);
    const all: Branch[] = [];
    const collect = (some: Branch[]) => some.forEach((one) => (all.push(one), collect(one.children)));
    collect(result);
    if (memory.key !== key || !by) {
      memory.key = key;
      memory.places = new Map(all.map((one, index) => [one.id, index]));
      return result;
    }
    all.forEach((one) => memory.places.has(one.id) || memory.places.set(one.id, memory.places.size));
    const hold = (some: Branch[]): Branch[] => some.map((one) => ({ ...one, children: hold(one.children) })).sort((a, b) => memory.places.get(a.id)! - memory.places.get(b.id)!);
    return hold(result);
  }, [branches, by, resource]);
}

function Flow({ given, resource }: { given: Loan[]; resource: string }) {
  const most = [...given].sort((a, b) => b.amount - a.amount).slice(0, 40);
  const sides = (side: "from" | "to") => {
    const sums = new Map<QuotaRow, number>();
    for (const loan of most) sums.set(loan[side], (sums.get(loan[side]) ?? 0) + loan.amount);
    return [...sums];
  };
  const [left, right] = [sides("from"), sides("to")];
  const total = most.reduce((sum, loan) => sum + loan.amount, 0);
  const gap = 10;
  const rows = Math.max(left.length, right.length);
  const height = Math.max(70, rows * 34);
  const scale = (height - gap * (rows - 1)) / total;
  const starts = (side: [QuotaRow, number][]) => {
    let y = (height - side.reduce((sum, [, amount]) => sum + amount * scale, 0) - gap * (side.length - 1)) / 2;
    return new Map(side.map(([quota, amount]) => {
      const at = y;
      y += amount * scale + gap;
      return [quota, at] as const;
    }));
  };
  const [lefts, rights] = [starts(left), starts(right)];
  const [leftUsed, rightUsed] = [new Map(lefts), new Map(rights)];
  const text = `Who lends ${resource} to whom: ${most.map((loan) => `${quotaLabel(loan.from)} lends ${show(loan.amount, resource)} to ${quotaLabel(loan.to)}`).join("; ")}`;
  return (
    <svg class="flow" viewBox={`0 0 640 ${height + 4}`} role="img" aria-label={text}>
      {most.map((loan, index) => {
        const wide = loan.amount * scale;
        const [y1, y2] = [leftUsed.get(loan.from)!, rightUsed.get(loan.to)!];
        leftUsed.set(loan.from, y1 + wide);
        rightUsed.set(loan.to, y2 + wide);
        return <path key={index} d={`M198 ${y1} C320 ${y1} 320 ${y2} 442 ${y2} V${y2 + wide} C320 ${y2 + wide} 320 ${y1 + wide} 198 ${y1 + wide} Z`}><title>{`${quotaLabel(loan.from)} lends ${show(loan.amount, resource)} ${resource} to ${quotaLabel(loan.to)}`}</title></path>;
      })}
      {[{ side: left, at: lefts, x: 190, text: 182, anchor: "end", kind: "lent" }, { side: right, at: rights, x: 442, text: 458, anchor: "start", kind: "borrowed" }].flatMap(({ side, at, x, text: middle, anchor, kind }) =>
        side.map(([quota, amount]) => (
          <g key={`${kind}${quotaLabel(quota)}`}>
            <rect class={kind} x={x} y={at.get(quota)} width="8" height={Math.max(2, amount * scale)} rx="2" />
            <text x={middle} y={at.get(quota)! + (amount * scale) / 2 + 4} text-anchor={anchor}>{clipped(quotaLabel(quota))} {show(amount, resource)}</text>
          </g>
        )),
      )}
    </svg>
  );
}

function clipped(text: string): string {
  return text.length > 22 ? `${text.slice(0, 20)}…` : text;
}

function Lending({ quotas, resource }: { quotas: QuotaRow[]; resource: string }) {
  const names = resource ? [resource] : [...new Set(quotas.flatMap((quota) => Object.keys(quota.resources)))].sort((a, b) => rank(a) - rank(b));
  const found = names.map((name) => ({ name, given: loans(quotas, name) })).filter(({ given }) => given.length);
  if (!found.length) return <Empty title="Nobody borrows now.">A team borrows when it uses more than its min while others leave theirs idle.</Empty>;
  return <>{found.map(({ name, given }) => <figure key={name}><figcaption>{name}: lenders on the left, borrowers on the right</figcaption><Flow given={given} resource={name} /></figure>)}</>;
}

function Details({ quota }: { quota: QuotaRow }) {
  const label = quotaLabel(quota);
  const kind = quota.kind || "quota";
  const has = quota.policy !== "crossquota";
  const found = useApi<{ items: QuotaExplanation[] }>(has ? `/quotas/${encodeURIComponent(kind)}/${label.split("/").map(encodeURIComponent).join("/")}/explain` : null);
  const key = quota.namespace ? `${quota.namespace}/${quota.name}` : quota.name;
  return (
    <Panel name={`Quota ${label}`} title={label} close={() => change({ quota: "" })}>
      <p class="note">{quota.kind} {quota.exceeded && <Tag kind="bad">uses more than its max</Tag>}</p>
      {quota.message && <p class="reason no">{quota.message}</p>}
      <table class="small">
        <thead><tr><th>Resource</th><th>Used</th><th>Min</th><th>Runtime</th><th>Max</th><th>Borrowed</th><th>Lent</th></tr></thead>
        <tbody>{Object.entries(quota.resources).map(([name, one]) => <tr key={name}><th scope="row">{name}</th>{([one.used, one.min, one.runtime, one.max, one.borrowed, one.lent]).map((text, index) => <td key={index}>{text || "–"}</td>)}</tr>)}</tbody>
      </table>
      {has && (
        <Shown of={found} rows={3}>
          {(data) => <>{data.items.map((one, index) => (
            <div key={index}>
              {one.borrowers.length > 0 && <p>Borrowing: {one.borrowers.slice(0, 10).map((name, at) => <span key={name}>{at > 0 && ", "}<ClaimLink name={name} /></span>)}</p>}
              {one.waiting.length > 0 && <p>Waiting for it: {one.waiting.slice(0, 10).map((name, at) => <span key={name}>{at > 0 && ", "}<ClaimLink name={name} /></span>)}</p>}
              <h3>Why it has what it has</h3>
              <ul class="tree"><CheckTree check={one.tree} /></ul>
              <div class="buttons"><Copy text={one.text} label="Copy as text" /></div>
            </div>
          ))}</>}
        </Shown>
      )}
      <div class="buttons">
        <CopyYaml kind={quota.kind} name={key} />
        {quota.kind !== "Node" && <Link view="plan" params={{ kind: quota.kind, key }} class="button">Edit in a plan</Link>}
        {quota.account && <Link view="claims" params={{ quota: quota.account }} class="button">Its claims</Link>}
      </div>
    </Panel>
  );
}

export function QuotasView() {
  const { params } = useStore(place);
  const found = useList<QuotaRow>("/quotas");
  const [closed, setClosed] = useState<Set<string>>(new Set(["crossquota"]));
  const [filter, resource, by] = [params.get("filter") ?? "", params.get("resource") ?? "", params.get("sort") ?? ""];
  const items = found.data?.items ?? [];
  const tree = useMemo(() => hierarchy(items), [found.data]);
  const ordered = useSorted(tree, by, resource);
  const lines = useMemo(() => {
    const text = filter.toLowerCase();
    return flat(ordered, filter ? new Set() : closed, (branch) => !text || [branch.label, branch.quota?.tree, branch.quota?.kind, branch.quota?.namespace].some((one) => one?.toLowerCase().includes(text)), resource);
  }, [ordered, closed, filter, resource]);
  const resources = useMemo(() => [...new Set(items.flatMap((quota) => Object.keys(quota.resources)))].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b)), [found.data]);
  const wanted = params.get("quota");
  const opened = wanted ? items.find((quota) => quota.account === wanted || quotaLabel(quota) === wanted) : undefined;
  const toggle = (id: string) => setClosed((before) => {
    const next = new Set(before);
    if (!next.delete(id)) next.add(id);
    return next;
  });
  const columns: Column<Line>[] = [
    {
      name: "Quota", class: "name",
      cell: ({ branch, first }) => first ? (
        <span class={`depth d${Math.min(branch.depth, 8)}`}>
          {branch.children.length ? (
            <button type="button" class="twist" aria-expanded={!closed.has(branch.id)} aria-label={`${closed.has(branch.id) ? "Open" : "Close"} ${branch.label}`} onClick={() => toggle(branch.id)}>{closed.has(branch.id) ? "▸" : "▾"}</button>
          ) : <i class="twist" />}
          {branch.quota ? <a href="" data-quota onClick={(event) => (event.preventDefault(), change({ quota: branch.quota!.account || quotaLabel(branch.quota!) }, false))}>{branch.label}</a> : <strong>{branch.label}</strong>}
          {branch.quota?.exceeded && <Tag kind="bad">over max</Tag>}
          {branch.quota?.message && !branch.quota.exceeded && <span class="tag warn" title={branch.quota.message}>look</span>}
        </span>
      ) : <span class="hidden">{branch.label}</span>,
    },
    { name: "Resource", class: "optional", cell: ({ resource: name }) => <span title={name}>{brief(name)}</span> },
    { name: "Used of max", class: "wide-bar", cell: ({ branch, resource: name }) => name && <QuotaBar amounts={branch.quota!.resources[name]!} resource={name} /> },
    ...(["used", "borrowed", "lent", "min", "runtime", "max"] as const).map((side): Column<Line> => ({
      name: side[0]!.toUpperCase() + side.slice(1), class: `number ${side === "used" ? "" : "optional"}`,
      cell: ({ branch, resource: name }) => { const text = name ? branch.quota!.resources[name]![side] : ""; return text && (text !== "0" || side === "used" || side === "max") ? text : name ? "–" : ""; },
    })),
  ];
  return (
    <>
      <div class="tools">
        <Filter value={filter} change={(value) => change({ filter: value })} label="Filter quotas" />
        <Select label="Resource" value={resource} change={(value) => change({ resource: value })} options={[["", "All"], ...resources.map((name): [string, string] => [name, name])]} />
        <Select label="Sort" value={by} change={(value) => change({ sort: value })} options={SORTS} />
        <ul class="legend" aria-label="Legend"><li><i class="dot used" />used</li><li><i class="dot borrowed" />borrowed</li><li><i class="dot lent" />lent</li><li><i class="tick min" />min</li><li><i class="tick runtime" />runtime</li></ul>
      </div>
      <div class={opened ? "split" : ""}>
        <div class="main-part">
          <Card title="Quotas" aside={`${(items.length + (found.data?.remaining ?? 0)).toLocaleString("en")} quotas`}>
            <Shown of={found} rows={8}>
              {() => <Table name="Quotas" rows={lines} id={(line) => line.id} columns={columns} rowClass={({ branch }) => (branch.quota ? "" : "group")} empty={items.length ? <Empty title="No quota is called so." /> : <Empty title="There are no quotas.">Every claim starts where a node has room. Apply a quota on the page <Link view="plan">What-if and plan</Link>.</Empty>} />}
            </Shown>
          </Card>
          <Card title="Who lends to whom">
            <Shown of={found} rows={2}>{() => <Lending quotas={items} resource={resource} />}</Shown>
          </Card>
        </div>
        {opened && <Details quota={opened} />}
      </div>
    </>
  );
}
