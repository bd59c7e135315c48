// Who waits, in which order, since when and why; and what would help.
import { useApi, useList } from "../api";
import { Explain } from "../explain";
import { shownAmounts, when } from "../quantity";
import { change, place } from "../router";
import { useStore } from "../store";
import { type Column, Table } from "../table";
import { since } from "../time";
import type { Info, QueueRow } from "../types";
import { Card, Empty, Filter, Link, Panel, Shown, Tag } from "../ui";

export function QueueView() {
  const { params } = useStore(place);
  const found = useList<QueueRow>("/queue");
  const info = useApi<Info>(found.data?.items.length === 0 ? "" : null, {}, false);
  const filter = (params.get("filter") ?? "").toLowerCase();
  const opened = params.get("claim") ?? "";
  const moment = found.data?.moment;
  const columns: Column<QueueRow>[] = [
    { name: "#", class: "position", cell: (row) => row.position, sort: (row) => row.position },
    { name: "Claim", class: "name", cell: (row) => <><a href="" onClick={(event) => (event.preventDefault(), change({ claim: name(row) }, false))}>{name(row)}</a>{row.group && <small> gang {row.group}</small>}</>, sort: name },
    { name: "Wants", class: "amounts", cell: (row) => shownAmounts(row.requests, row.gpus) || "nothing" },
    { name: "Since", class: "since", cell: (row) => <span title={when(row.created)}>{since(row.created, moment)}</span>, sort: (row) => row.created },
    { name: "Priority", class: "number optional", cell: (row) => row.priority, sort: (row) => -row.priority },
    { name: "Why", class: "message", cell: (row) => <>{row.never && <Tag kind="bad">never as things are</Tag>}{row.state === "held" && <Tag kind="warn">held</Tag>}<span title={row.message}>{row.message || row.reason || "not decided yet"}</span></> },
  ];
  return (
    <>
      <div class="tools"><Filter value={params.get("filter") ?? ""} change={(value) => change({ filter: value })} label="Filter by name or reason" /></div>
      <div class={opened ? "split" : ""}>
        <Card title="Queue" aside={found.data && `${(found.data.items.length + found.data.remaining).toLocaleString("en")} waiting`}>
          <Shown of={found} rows={6}>
            {(data) => {
              const rows = filter ? data.items.filter((row) => `${name(row)} ${row.reason} ${row.message}`.toLowerCase().includes(filter)) : data.items;
              return <Table name="Queue" rows={rows} id={(row) => row.uid} columns={columns} rowClass={(row) => (name(row) === opened ? "opened" : "")} held={false}
                empty={data.items.length ? <Empty title="No waiting claim matches." /> : <Empty title="Nothing waits.">{info.data ? <>{info.data.claims} claims have a place: <Link view="claims">see them</Link>.</> : "Everything that was asked for has a place."}</Empty>} />;
            }}
          </Shown>
        </Card>
        {opened && (
          <Panel name={`Claim ${opened}`} title={opened} close={() => change({ claim: "" })}>
            <Explain key={opened} name={opened} fixes />
            <div class="buttons"><Link view="claims" params={{ claim: opened }} class="button">Its whole story</Link></div>
          </Panel>
        )}
      </div>
    </>
  );
}

function name(row: QueueRow): string {
  return `${row.namespace}/${row.name}`;
}
