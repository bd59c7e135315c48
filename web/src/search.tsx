// Search across claims, quotas and nodes.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useList } from "./api";
import { go, href } from "./router";
import type { ClaimRow, NodeRow, QuotaRow } from "./types";
import { Dialog } from "./ui";
import { quotaLabel } from "./views/quota-tree";

interface Hit { kind: string; name: string; more: string; address: string; text: string }
const MOST = 30;

export function Search({ close }: { close: () => void }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const claims = useList<ClaimRow>("/claims");
  const quotas = useList<QuotaRow>("/quotas");
  const nodes = useList<NodeRow>("/nodes");
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => box.current?.focus(), []);
  const all = useMemo(() => {
    const hits: Hit[] = [];
    for (const row of quotas.data?.items ?? []) hits.push(hit("quota", quotaLabel(row), row.kind.split(".")[0]!, "quotas", { quota: row.account || quotaLabel(row) }));
    for (const row of nodes.data?.items ?? []) hits.push(hit("node", row.name, Object.values(row.labels).slice(0, 3).join(" "), "nodes", { node: row.name }));
    for (const row of claims.data?.items ?? []) hits.push(hit("claim", `${row.namespace}/${row.name}`, `${row.phase} ${row.node}`, "claims", { claim: `${row.namespace}/${row.name}` }));
    return hits;
  }, [claims.data, quotas.data, nodes.data]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = useMemo(() => (words.length ? all.filter((one) => words.every((word) => one.text.includes(word))) : []), [all, text]);
  const shown = found.slice(0, MOST);
  const open = (one: Hit | undefined) => {
    if (!one) return;
    close();
    go(one.address);
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter") open(shown[chosen]);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    setChosen((before) => Math.max(0, Math.min(shown.length - 1, before + step)));
  };
  return (
    <Dialog title="Search" close={close} class="search">
      <input ref={box} role="combobox" aria-expanded={shown.length > 0} aria-controls="hits" aria-activedescendant={shown.length ? `hit-${chosen}` : undefined} aria-label="Search claims, quotas and nodes" placeholder="Search claims, quotas and nodes"
        value={text} onInput={(event) => (setText(event.currentTarget.value), setChosen(0))} onKeyDown={press} />
      <p class="note" role="status">{!words.length ? "A name, a kind, a phase or a node." : !claims.data ? "Reading…" : `${found.length} found${found.length > MOST ? `, the first ${MOST} shown` : ""}`}</p>
      <ul id="hits" role="listbox" aria-label="Found">
        {shown.map((one, index) => <li key={`${one.kind} ${one.name} ${index}`} id={`hit-${index}`} role="option" aria-selected={index === chosen} onClick={() => open(one)}><b>{one.kind}</b> {one.name} <small>{one.more}</small></li>)}
      </ul>
    </Dialog>
  );
}

function hit(kind: string, name: string, more: string, view: string, params: Record<string, string>): Hit {
  return { kind, name, more, address: href(view, params), text: `${kind} ${name} ${more}`.toLowerCase() };
}
