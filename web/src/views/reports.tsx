// Amount times hours by team, what waited, and quota that lies idle. For a spreadsheet as CSV.
import { useList } from "../api";
import { brief, parse, rank, round, show, isBytes } from "../quantity";
import { change, place } from "../router";
import { useStore } from "../store";
import { type Column, Table } from "../table";
import type { Activity, QuotaRow } from "../types";
import { Bar, Card, Empty, Link, Select, Shown } from "../ui";
import { RANGES, useActivity } from "./history";
import { quotaLabel } from "./quota-tree";

type Hours = Activity["teams"][number];

/** Cells that a spreadsheet would take for a formula are quoted by an apostrophe. */
export function csv(rows: string[][]): string {
  const cell = (text: string) => {
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function save(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function hours(text: string, resource: string): string {
  const amount = parse(text);
  return isBytes(resource) ? `${show(amount, resource)}·h` : `${round(amount)} h`;
}

function Teams({ rows, resource }: { rows: Hours[]; resource: string }) {
  const most = Math.max(1e-9, ...rows.map((row) => parse(row.used)));
  const columns: Column<Hours>[] = [
    { name: "Team", class: "name", cell: (row) => <Link view="claims" params={{ namespace: row.namespace }}>{row.namespace || "none"}</Link>, sort: (row) => row.namespace },
    { name: `${brief(resource)}-hours`, class: "wide-bar", cell: (row) => <Bar whole={most} label={`${row.namespace}: ${hours(row.used, resource)}`} parts={[{ amount: parse(row.used), kind: "used", name: "used" }]} />, sort: (row) => -parse(row.used) },
    { name: "Used", class: "number", cell: (row) => hours(row.used, resource), sort: (row) => -parse(row.used) },
    { name: "Waited", class: "number", cell: (row) => hours(row.waited, resource), sort: (row) => -parse(row.waited) },
    { name: "Waited per used", class: "number optional", cell: (row) => (parse(row.used) ? `${Math.round((100 * parse(row.waited)) / parse(row.used))}%` : "–") },
  ];
  return <Table name="Teams" rows={rows} id={(row) => row.namespace} columns={columns} start={{ column: `${brief(resource)}-hours`, down: false }} empty={<Empty title="No team used this in that time." />} />;
}

function Idle() {
  const found = useList<QuotaRow>("/quotas");
  return (
    <Shown of={found}>
      {({ items }) => {
        const rows = items.flatMap((quota) => Object.entries(quota.resources).map(([resource, one]) => ({ quota, resource, one }))).filter(({ one }) => parse(one.idle) > 0).sort((a, b) => rank(a.resource) - rank(b.resource) || parse(b.one.idle) - parse(a.one.idle));
        if (!rows.length) return <Empty title="No min lies idle." />;
        return (
          <ul class="pools">
            {rows.slice(0, 30).map(({ quota, resource, one }) => (
              <li key={`${quotaLabel(quota)} ${resource} ${quota.policy}`}>
                <Link view="quotas" params={{ quota: quota.account || quotaLabel(quota) }}>{quotaLabel(quota)}</Link>
                <Bar whole={parse(one.min)} label={`${quotaLabel(quota)}: ${one.idle} of min ${one.min} ${resource} idle, ${one.lent || 0} of it lent`} parts={[{ amount: parse(one.min) - parse(one.idle), kind: "used", name: "used" }, { amount: parse(one.lent), kind: "lent", name: "lent" }]} />
                <span>{one.idle} of {one.min} {brief(resource)} idle{parse(one.lent) ? `, ${one.lent} lent` : ""}</span>
              </li>
            ))}
            {rows.length > 30 && <li class="more">and {rows.length - 30} more</li>}
          </ul>
        );
      }}
    </Shown>
  );
}

export function ReportsView() {
  const { params } = useStore(place);
  const range = params.get("range") ?? "-24h";
  const found = useActivity(range);
  const names = [...new Set(found.data?.teams.map((one) => one.resource) ?? [])].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  const resource = params.get("resource") || names[0] || "";
  const rows = found.data?.teams.filter((one) => one.resource === resource) ?? [];
  const download = () => save(`bursar-${brief(resource)}-hours.csv`, csv([["team", "resource", "used hours", "waited hours", "from", "to"], ...(found.data?.teams ?? []).map((one) => [one.namespace, one.resource, String(parse(one.used)), String(parse(one.waited)), found.data!.start, found.data!.moment.time])]));
  return (
    <>
      <div class="tools">
        <Select label="Time" value={range} change={(value) => change({ range: value })} options={RANGES} />
        <Select label="Resource" value={resource} change={(value) => change({ resource: value })} options={names.map((name): [string, string] => [name, name])} />
        <button type="button" onClick={download} disabled={!rows.length}>Export CSV</button>
        {found.data && !found.data.complete && <span class="note" role="status">Reading the journal…</span>}
      </div>
      <Card title={`${brief(resource) || "GPU"}-hours by team`} aside="exact, from the journal"><Shown of={found} rows={6}>{() => <Teams key={resource} rows={rows} resource={resource} />}</Shown></Card>
      <Card title="Quota that lies idle now"><Idle /></Card>
    </>
  );
}
