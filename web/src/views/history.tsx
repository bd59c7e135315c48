// What was used and what waited over time; evictions; and the way to any moment of it.
import { useMemo } from "preact/hooks";
import { useApi } from "../api";
import { Chart } from "../chart";
import { brief, parse, show, when } from "../quantity";
import { change, go, href, place } from "../router";
import { useStore } from "../store";
import type { Activity, DecisionRow } from "../types";
import { Card, ClaimLink, Empty, Open, Select, Shown, Tag } from "../ui";
import { mainResources } from "./overview";

export const RANGES: [string, string][] = [["-10m", "10 minutes"], ["-1h", "1 hour"], ["-6h", "6 hours"], ["-24h", "24 hours"], ["-168h", "7 days"], ["-720h", "30 days"]];

/** Activity up to the moment that is shown, over a range. The journal is read in parts, so it may take several questions. */
export function useActivity(range: string, namespace = "") {
  const at = useStore(place).params.get("at") ?? "";
  return useApi<Activity>("/activity", { from: range, to: at, namespace, at: "" });
}

function Charts({ data, resource }: { data: Activity; resource: string }) {
  const start = Date.parse(data.start) / 1000;
  const times = useMemo(() => Array.from({ length: data.points }, (_, index) => start + index * data.stepSeconds), [start, data.points, data.stepSeconds]);
  const series = data.series.find((one) => one.resource === resource);
  const begins = Date.parse(data.begins) / 1000;
  const known = (values: number[]) => values.map((value, index) => (times[index]! + data.stepSeconds < begins ? null : value));
  const use = useMemo(() => [
    { name: "used", kind: "used", values: known((series?.used ?? []).map(parse)) },
    { name: "waiting", kind: "wanted", values: known((series?.waited ?? []).map(parse)) },
  ], [data, resource]);
  const happened = useMemo(() => [
    { name: "started", kind: "used", values: known(data.started), bars: true },
    { name: "evicted", kind: "bad", values: known(data.evicted), bars: true },
  ], [data]);
  const pick = (time: number) => go(href("history", { ...Object.fromEntries(place.value.params), at: new Date(Math.max(begins, time + data.stepSeconds / 2) * 1000).toISOString().replace(/\.\d+/, "") }));
  return (
    <>
      <Card title={`${brief(resource)} used and waited for`} aside="Click a moment to see it">
        <Chart times={times} lines={use} label={`${resource} over time: used, and asked for by claims that waited`} format={(value) => show(value, resource)} pick={pick} />
      </Card>
      <Card title="Starts and evictions" aside={data.stepSeconds < 60 ? `each bar is ${data.stepSeconds} seconds` : `each bar is ${data.stepSeconds / 60} minutes`}>
        <Chart times={times} lines={happened} label="Claims that started and claims that were evicted, over time" format={(value) => String(Math.round(value))} pick={pick} height={150} />
      </Card>
    </>
  );
}

function Decisions() {
  const at = useStore(place).params.get("at") ?? "";
  const found = useApi<{ items: DecisionRow[] }>("/decisions", { limit: 400, ...(/^\d+$/.test(at) ? { before: Number(at) + 1 } : {}), at: "" });
  return (
    <Shown of={found}>
      {({ items }) => {
        const moment = Date.parse(at);
        const rows = items.filter((row) => (row.outcome || row.cause === "configure") && !(moment && Date.parse(row.time) > moment)).slice(0, 60);
        if (!rows.length) return <Empty title="Nothing was decided yet." />;
        return (
          <ol class="decisions" tabIndex={0} aria-label="Decisions, the newest first">
            {rows.map((row, index) => (
              <li key={`${row.seq} ${index}`}>
                <Open params={{ at: String(row.seq) }} label={`Show everything as of record ${row.seq}`}>{when(row.time)}</Open>
                <Tag kind={{ admitted: "good", evicted: "bad", never: "bad", waiting: "wait", held: "warn" }[row.outcome] ?? "plain"}>{row.outcome || "settings"}</Tag>
                <span>{row.claim ? <ClaimLink name={row.claim} /> : row.subjects.slice(0, 3).join(", ")}{row.victims.length > 0 && <> in place of {row.victims.map((name) => <ClaimLink key={name} name={name} />)}</>} <small>{row.message || row.node}</small></span>
              </li>
            ))}
          </ol>
        );
      }}
    </Shown>
  );
}

export function HistoryView() {
  const { params } = useStore(place);
  const range = params.get("range") ?? "-1h";
  const found = useActivity(range, params.get("namespace") ?? "");
  const names = found.data?.series.map((one) => one.resource) ?? [];
  const main = mainResources([...names]);
  const resource = params.get("resource") || main[0] || "";
  return (
    <>
      <div class="tools">
        <Select label="Time" value={range} change={(value) => change({ range: value })} options={RANGES} />
        <Select label="Resource" value={resource} change={(value) => change({ resource: value })} options={names.map((name): [string, string] => [name, name])} />
        {found.data && !found.data.complete && <span class="note" role="status">Reading the journal…</span>}
      </div>
      <Shown of={found} rows={8}>
        {(data) => data.series.length ? <Charts data={data} resource={resource} /> : <Card title="Over time"><Empty title="Nothing was used in this time.">The journal begins {when(data.begins)}.</Empty></Card>}
      </Shown>
      <Card title="Decisions"><Decisions /></Card>
    </>
  );
}
