// Changes on paper: what a quota's change or a pod would do; then apply it with one's own rights, and undo.
import { useEffect, useState } from "preact/hooks";
import { ApiError, post, query, read, useApi } from "../api";
import { changes as news } from "../live";
import { when } from "../quantity";
import { change as changePlace, place } from "../router";
import { useStore } from "../store";
import { since } from "../time";
import type { Change, Plan, PodNews, QuotaRow, WhatIf } from "../types";
import { Card, ClaimLink, Empty, Loading, Select, Tag, useMayChange } from "../ui";
import { yaml } from "../yaml";
import { useList } from "../api";
import { quotaLabel } from "./quota-tree";

type Manifest = Record<string, unknown>;

/** A manifest without what the server wrote into it. */
export function bare(manifest: Manifest): Manifest {
  const { status: _, ...rest } = manifest;
  const metadata = { ...(rest.metadata as Manifest) };
  for (const name of ["resourceVersion", "uid", "generation", "creationTimestamp", "managedFields"]) delete metadata[name];
  return { ...rest, metadata };
}

/** Sets `spec.max.nvidia.com/gpu` or `spec.containers[0].image`: names may hold dots, so known ones go first. */
export function setField(target: unknown, path: string, value: unknown): void {
  const match = /^\[(\d+)\]\.?(.*)$/.exec(path);
  const holder = target as Record<string, unknown>;
  let key: string;
  let rest: string;
  if (match) [key, rest] = [match[1]!, match[2]!];
  else {
    const known = Object.keys(holder).filter((name) => path === name || (path.startsWith(name) && /^[.[]/.test(path.slice(name.length)))).sort((a, b) => b.length - a.length)[0];
    key = known ?? (path.includes("/") && path.indexOf(".") < path.indexOf("/") ? path : (/^[^.[]+/.exec(path)?.[0] ?? path));
    rest = path.slice(key.length).replace(/^\./, "");
  }
  if (!rest) {
    holder[key] = value;
    return;
  }
  holder[key] ??= {};
  setField(holder[key], rest, value);
}

const POD = `apiVersion: v1
kind: Pod
metadata:
  namespace: you
  name: try-1
spec:
  containers:
    - name: main
      resources:
        limits:
          nvidia.com/gpu: 1
`;

const VERDICTS: Record<string, [string, string]> = {
  now: ["good", "starts now"], "after-evictions": ["warn", "starts after evictions"], queued: ["wait", "waits"],
  never: ["bad", "never as things are"], evicted: ["bad", "would be evicted"],
};

function Names({ title, names, kind, none }: { title: string; names: string[]; kind: string; none?: string }) {
  if (!names.length) return none ? <li class="none">{none}</li> : null;
  return <li><Tag kind={kind}>{title}</Tag> <span>{names.slice(0, 40).map((name, index) => <span key={name}>{index > 0 && ", "}<ClaimLink name={name} /></span>)}{names.length > 40 && ` and ${names.length - 40} more`}</span></li>;
}

function News({ title, rows, kind, none }: { title: string; rows: PodNews[]; kind: string; none?: string }) {
  if (!rows.length) return none ? <li class="none">{none}</li> : null;
  return <>{rows.slice(0, 40).map((row) => <li key={row.pod}><Tag kind={kind}>{title}</Tag> <span><ClaimLink name={row.pod} />{row.reason && <small> {row.reason}</small>}</span></li>)}{rows.length > 40 && <li class="none">and {rows.length - 40} more</li>}</>;
}

function PlanResult({ plan }: { plan: Plan }) {
  const touched = plan.objects.filter((one) => one.result !== "unchanged");
  return (
    <ul class="outcome">
      {touched.length ? touched.map((one) => <li key={one.kind + one.key}><Tag kind="plain">{one.result}</Tag> {one.kind.split(".")[0]} {one.key}</li>) : <li class="none">These manifests change nothing.</li>}
      <Names title="starts" names={plan.starts} kind="good" none="No waiting pod starts." />
      <News title="evicted" rows={plan.evicted} kind="bad" none="No pod is evicted." />
      <News title="waits" rows={plan.waits} kind="wait" />
      <News title="loses its node" rows={plan.stranded} kind="bad" />
      <Names title="gone" names={plan.gone} kind="plain" />
      {plan.borrowing.map((one) => <li key={one.quota + one.resource}><Tag kind="borrowed">borrowing</Tag> <span>{one.quota}: {one.resource} {one.before || 0} → {one.after || 0}</span></li>)}
      {plan.warnings.map((text) => <li key={text}><Tag kind="warn">look</Tag> {text}</li>)}
      {plan.evictionsWithin && <li class="none">Evictions were looked for {plan.evictionsWithin} ahead.</li>}
    </ul>
  );
}

function TrialResult({ trial }: { trial: WhatIf }) {
  return (
    <ul class="outcome">
      {trial.pods.map((row) => {
        const [kind, text] = VERDICTS[row.verdict] ?? ["plain", row.verdict];
        return <li key={row.pod}><Tag kind={kind}>{text}</Tag> <span><strong>{row.pod}</strong>{row.node && ` on ${row.node}`}{row.ahead > 0 && `, ${row.ahead} ahead of it`} <small>{row.message}</small>{row.victims.length > 0 && <small> in place of {row.victims.join(", ")}</small>}</span></li>;
      })}
      <Names title="evicted" names={trial.evicted} kind="bad" none="No pod is evicted." />
      <Names title="starts too" names={trial.starts} kind="good" />
      <Names title="loses its place" names={trial.waits} kind="wait" />
      {trial.warnings.map((text) => <li key={text}><Tag kind="warn">look</Tag> {text}</li>)}
    </ul>
  );
}

function Applied({ change, undone }: { change: Change; undone: () => void }) {
  return (
    <div class="applied" role="status">
      <p><Tag kind="good">{change.undoes ? "undone" : "applied"}</Tag> {change.id ? `This is change ${change.id}.` : "Nothing changed."}</p>
      <ul class="outcome"><News title="" rows={[]} kind="" />{change.pods.slice(0, 20).map((row) => <li key={row.pod + row.what}><Tag kind={{ started: "good", evicted: "bad", waits: "wait" }[row.what] ?? "plain"}>{row.what}</Tag> <ClaimLink name={row.pod} /></li>)}{change.lost.map((text) => <li key={text}><Tag kind="warn">lost</Tag> {text}</li>)}</ul>
      {change.id > 0 && !change.undoes && <UndoButton id={change.id} done={undone} />}
    </div>
  );
}

/** Asks what cannot come back before it takes a change back. */
function UndoButton({ id, done }: { id: number; done: (change: Change) => void }) {
  const { may } = useMayChange();
  const [asked, setAsked] = useState<Change | null>(null);
  const [problem, setProblem] = useState("");
  if (!may) return null;
  const run = async (dryRun: boolean) => {
    setProblem("");
    try {
      const found = await post<Change>(query(`/changes/${id}/undo`, dryRun ? { dryRun: "true" } : {}), "");
      if (dryRun) setAsked(found);
      else {
        setAsked(null);
        done(found);
      }
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <div class="undo">
      {problem && <p class="reason no" role="alert">{problem}</p>}
      {asked ? (
        <div class="confirm" role="alertdialog" aria-label={`Undo change ${id}`}>
          <p>{asked.pods.length ? asked.pods.slice(0, 5).map((row) => `${row.pod} ${row.what}`).join(", ") : "No pod is touched by it."} {asked.lost.join(" ")}</p>
          <button type="button" class="primary" onClick={() => void run(false)}>Undo change {id}</button>
          <button type="button" onClick={() => setAsked(null)}>Leave it</button>
        </div>
      ) : <button type="button" onClick={() => void run(true)}>Undo</button>}
    </div>
  );
}

function Changes({ wanted }: { wanted: string }) {
  const found = useApi<{ items: Change[] }>("/changes", { limit: 100, at: "" });
  const rows = (found.data?.items ?? []).filter((change) => String(change.id) === wanted || change.undoes || change.objects.some((one) => one.kind !== "Pod")).slice(0, 15);
  if (!rows.length) return <Empty title="No quota, node or setting was changed yet." />;
  return (
    <ul class="changes">
      {rows.map((change) => (
        <li key={change.id} class={String(change.id) === wanted ? "opened" : ""}>
          <strong>{change.id}</strong> {change.undoes ? `undo of ${change.undoes}` : change.verb}: {change.objects.slice(0, 3).map((one) => `${one.kind.split(".")[0]} ${one.key} ${one.result}`).join(", ")}{change.objects.length > 3 && ` and ${change.objects.length - 3} more`} <small title={when(change.moment.time)}>{since(change.moment.time)}</small>
          <UndoButton id={change.id} done={() => (news.value += 1)} />
        </li>
      ))}
    </ul>
  );
}

type Result = { plan?: Plan; trial?: WhatIf; change?: Change; text: string };

export function PlanView() {
  const { params } = useStore(place);
  const { may, why } = useMayChange();
  const quotas = useList<QuotaRow>("/quotas");
  const mode = params.get("mode") ?? "plan";
  const [text, setText] = useState(mode === "pods" ? POD : "");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const [result, setResult] = useState<Result | null>(null);
  const [kind, key] = [params.get("kind") ?? "", params.get("key") ?? ""];
  useEffect(() => {
    if (!kind || !key) return;
    setResult(null);
    read<Manifest>(`/objects/${encodeURIComponent(kind)}/${key.split("/").map(encodeURIComponent).join("/")}`).then(
      (manifest) => {
        const found = bare(manifest);
        const field = params.get("field");
        if (field) setField(found, field, JSON.parse(params.get("value") ?? "null"));
        setText(yaml(found));
        setProblem(null);
      },
      (error) => setProblem(error),
    );
  }, [kind, key, params.get("field"), params.get("value")]);
  const run = async (work: () => Promise<Omit<Result, "text">>) => {
    setBusy(true);
    setProblem(null);
    try {
      setResult({ ...(await work()), text });
    } catch (error) {
      setProblem(error as ApiError);
      setResult(null);
    }
    setBusy(false);
  };
  const look = () => run(async () => (mode === "pods" ? { trial: await post<WhatIf>("/what-if", text) } : { plan: await post<Plan>("/plan", text) }));
  const apply = () => run(async () => ({ change: await post<Change>("/apply?source=dashboard.yaml", text) }));
  const seen = new Set<string>();
  const editable = (quotas.data?.items ?? []).filter((quota) => quota.policy !== "crossquota").filter((quota) => {
    const id = `${quota.kind} ${quota.namespace}/${quota.name}`;
    return !seen.has(id) && seen.add(id);
  });
  const named = (quota: QuotaRow) => `${quota.kind}|${quota.namespace ? `${quota.namespace}/` : ""}${quota.name}`;
  return (
    <div class="columns plan">
      <Card title="On paper" aside={
        <div class="tabs" role="group" aria-label="What to try">
          <button type="button" aria-pressed={mode === "plan"} onClick={() => (setResult(null), setText(""), changePlace({ mode: "" }))}>Change quotas</button>
          <button type="button" aria-pressed={mode === "pods"} onClick={() => (setResult(null), setText(POD), changePlace({ mode: "pods", kind: "", key: "", field: "", value: "" }))}>Try pods</button>
        </div>
      }>
        {mode === "plan" && <Select label="Start from" value={kind && key ? `${kind}|${key}` : ""} change={(value) => { const [one, two] = value.split("|"); changePlace({ kind: one ?? "", key: two ?? "", field: "", value: "" }); }}
          options={[["", "manifests of your own"], ...editable.map((quota): [string, string] => [named(quota), `${quota.kind.split(".")[0]} ${quota.node ? quota.name : quotaLabel(quota)}`])]} />}
        <label class="editor">
          <span class="hidden">Manifests</span>
          <textarea spellcheck={false} rows={18} value={text} placeholder={mode === "pods" ? "Paste pods or jobs" : "Choose a quota above, or paste manifests"} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <div class="buttons">
          <button type="button" class="primary" disabled={busy || !text.trim()} onClick={() => void look()}>Show what would happen</button>
          {may && <button type="button" disabled={busy || !text.trim() || result?.text !== text || Boolean(result.change)} title={result?.text === text ? "" : "Look first at what would happen"} onClick={() => void apply()}>Apply</button>}
        </div>
        {!may && <p class="note">{why} Trying things out changes nothing, so you may do that.</p>}
      </Card>
      <Card title="What would happen">
        {busy ? <Loading rows={3} /> : problem ? (
          <div class="failure" role="alert"><strong>The server refuses it</strong><p>{problem.message}</p>{problem.problem?.line ? <p class="note">Line {problem.problem.line}{problem.problem.field && `, field ${problem.problem.field}`}</p> : null}</div>
        ) : result?.plan ? <PlanResult plan={result.plan} /> : result?.trial ? <TrialResult trial={result.trial} /> : result?.change ? <Applied key={result.change.id} change={result.change} undone={() => (setResult(null), (news.value += 1))} />
          : <Empty title="Nothing was tried yet.">It is tried on a copy of the cluster: nothing changes before you apply it.</Empty>}
      </Card>
      <Card title="Changes so far" class="full"><Changes wanted={params.get("change") ?? ""} /></Card>
    </div>
  );
}
