// Why a claim waits, as a tree: what fails comes first, and the check to fix is marked. And what would help.
import { useState } from "preact/hooks";
import { claimPath, read, useApi } from "./api";
import { since } from "./time";
import { place } from "./router";
import { useStore } from "./store";
import type { CheckNode, Explanation, Fix } from "./types";
import { ClaimLink, Copy, Link, Shown } from "./ui";
import { yaml } from "./yaml";

export function CheckTree({ check, depth = 0 }: { check: CheckNode; depth?: number }) {
  const [open, setOpen] = useState(!check.passed || depth === 0);
  const parts = [...check.checks].sort((a, b) => Number(a.passed) - Number(b.passed) || Number(b.binding) - Number(a.binding));
  const line = (
    <>
      <b class={check.passed ? "ok" : "no"} aria-hidden="true">{check.passed ? "✓" : "✗"}</b>
      <span class="hidden">{check.passed ? "passed: " : "failed: "}</span>
      <span class="text">{check.title}{check.note && <em> {check.note}</em>}</span>
      {check.binding && <span class="tag warn">fix this first</span>}
    </>
  );
  return (
    <li class={check.binding ? "binding" : ""}>
      {parts.length ? (
        <button type="button" class="line" aria-expanded={open} onClick={() => setOpen(!open)}>
          <i aria-hidden="true">{open ? "▾" : "▸"}</i>{line}
        </button>
      ) : <span class="line"><i aria-hidden="true" />{line}</span>}
      {open && parts.length > 0 && <ul>{parts.map((part, index) => <CheckTree key={index} check={part} depth={depth + 1} />)}</ul>}
    </li>
  );
}

/** What somebody would type for a fix. */
export function fixText(fix: Fix): string {
  const lines = [`# ${fix.sentence}`];
  for (const edit of fix.edits)
    lines.push(yaml({ [`${edit.kind} ${edit.key}`]: { [edit.field]: edit.after } }).trimEnd() + (edit.anew ? "  # delete it and create it again" : ""));
  if (fix.evicts.length) lines.push(`# evicts ${fix.evicts.join(", ")}`);
  return lines.join("\n");
}

function FixItem({ fix }: { fix: Fix }) {
  const first = fix.edits[0];
  return (
    <li class="fix">
      <p>{fix.sentence}</p>
      {fix.edits.map((edit, index) => (
        <code key={index}>{edit.kind.split(".")[0]} {edit.key}: {edit.field} {String(edit.before ?? "none")} → {String(edit.after)}</code>
      ))}
      {fix.evicts.length > 0 && <p class="note">Evicts {fix.evicts.map((name) => <ClaimLink key={name} name={name} />)}</p>}
      <div class="buttons">
        <Copy text={fixText(fix)} label="Copy the fix" />
        {first && !first.anew && (
          <Link view="plan" params={{ kind: first.kind, key: first.key, field: first.field, value: JSON.stringify(first.after) }} class="button">
            Try it in a plan
          </Link>
        )}
      </div>
    </li>
  );
}

export function Fixes({ name }: { name: string }) {
  const found = useApi<Explanation>(`${claimPath(name)}/explain`, { fixes: "true" }, false);
  return (
    <section class="fixes">
      <h3>What would let it start now</h3>
      <Shown of={found} rows={2}>
        {(data) => data.fixes.length ? (
          <>
            <ol>{data.fixes.map((fix, index) => <FixItem key={index} fix={fix} />)}</ol>
            <p class="note">Each was tried out on a copy of the cluster{data.fixesComplete ? "." : "; there may be more."}</p>
          </>
        ) : <p class="note">No single change that was tried would let it start.</p>}
      </Shown>
    </section>
  );
}

/** The explain tree of a claim; `fixes` for one that waits. */
export function Explain({ name, fixes }: { name: string; fixes: boolean }) {
  const found = useApi<Explanation>(`${claimPath(name)}/explain`);
  const at = useStore(place).params.get("at");
  return (
    <Shown of={found} rows={5}>
      {({ claim, tree, text, moment }) => (
        <>
          {claim.message && <p class={`reason ${claim.phase === "Running" ? "" : "no"}`}>{claim.message}</p>}
          <dl class="facts">
            <dt>Since</dt><dd>{since(claim.created, moment)}</dd>
            {claim.quotaNames.length > 0 && <><dt>Quotas</dt><dd>{claim.quotaNames.join(", ")}</dd></>}
            <dt>Priority</dt><dd>{claim.priority}{claim.preemptible ? "" : ", non-preemptible"}</dd>
            {claim.reason && <><dt>Reason code</dt><dd><code>{claim.reason}</code></dd></>}
          </dl>
          {fixes && !at && <Fixes name={name} />}
          <h3>Every check</h3>
          <ul class="tree"><CheckTree check={tree} /></ul>
          <div class="buttons">
            <Copy text={text} label="Copy as text" />
            <CopyYaml kind="Pod" name={name} />
          </div>
        </>
      )}
    </Shown>
  );
}

export function CopyYaml({ kind, name }: { kind: string; name: string }) {
  const at = useStore(place).params.get("at");
  const path = `/objects/${encodeURIComponent(kind)}/${name.split("/").map(encodeURIComponent).join("/")}${at ? `?at=${encodeURIComponent(at)}` : ""}`;
  return <Copy label="Copy as YAML" text={async () => yaml(await read(path))} />;
}

