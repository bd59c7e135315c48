// The parts that all views are made of.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, session } from "./api";
import { retry } from "./live";
import { parse, show } from "./quantity";
import { href, place } from "./router";
import { useStore } from "./store";

export function Link(props: { view: string; params?: Record<string, string>; children: ComponentChildren; class?: string }) {
  useStore(place);
  return (
    <a href={href(props.view, props.params)} data-view="page" class={props.class}>
      {props.children}
    </a>
  );
}

/** A link that opens something in the view that is shown. */
export function Open(props: { params: Record<string, string>; children: ComponentChildren; label?: string }) {
  const { view, params } = useStore(place);
  return (
    <a href={href(view, { ...Object.fromEntries(params), ...props.params })} data-view="part" aria-label={props.label}>
      {props.children}
    </a>
  );
}

export function ClaimLink({ name }: { name: string }) {
  return <Link view="claims" params={{ claim: name }}>{name}</Link>;
}

export function Card(props: { title: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; class?: string }) {
  return (
    <section class={`card ${props.class ?? ""}`}>
      <header>
        <h2>{props.title}</h2>
        {props.aside && <div class="aside">{props.aside}</div>}
      </header>
      {props.children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children && <p>{children}</p>}
    </div>
  );
}

export function Loading({ rows = 4 }: { rows?: number }) {
  return (
    <div class="loading" role="status">
      <span class="hidden">Loading</span>
      {Array.from({ length: rows }, (_, row) => <div key={row} class="skeleton" />)}
    </div>
  );
}

export function Failure({ error }: { error: ApiError }) {
  const again = error.status === 0 || error.status >= 429;
  return (
    <div class="failure" role="alert">
      <strong>{TITLES[error.status] ?? "That did not work"}</strong>
      <p>{error.message}</p>
      {again && <button type="button" onClick={() => retry()}>Try again</button>}
    </div>
  );
}

const TITLES: Record<number, string> = {
  0: "The server cannot be reached",
  404: "There is no such thing",
  410: "That moment is no longer kept",
  503: "The server is busy",
};

/** What is there, or why it is not. */
export function Shown<T>(props: {
  of: { data: T | null; error: ApiError | null };
  children: (data: T) => ComponentChildren;
  rows?: number;
}) {
  const { data, error } = props.of;
  if (data !== null) return <>{props.children(data)}</>;
  return error ? <Failure error={error} /> : <Loading rows={props.rows ?? 4} />;
}

export interface Part { amount: number; kind: string; name: string }

/** A bar of parts of a whole, with marks on it. */
export function Bar(props: { parts: Part[]; whole: number; label: string; marks?: { at: number; kind: string; name: string }[] }) {
  const { whole } = props;
  const width = (amount: number) => `${whole > 0 ? Math.min(100, (100 * amount) / whole) : 0}%`;
  return (
    <div class="bar" role="img" aria-label={props.label} title={props.label}>
      {props.parts.map((part) => part.amount > 0 && <span key={part.kind} class={`part ${part.kind}`} style={{ width: width(part.amount) }} />)}
      {props.marks?.map((mark) => mark.at > 0 && mark.at <= whole && <i key={mark.kind} class={`mark ${mark.kind}`} style={{ left: width(mark.at) }} />)}
    </div>
  );
}

export function UsedBar({ used, of, resource }: { used: string; of: string; resource: string }) {
  const [amount, whole] = [parse(used), parse(of)];
  const kind = whole && amount / whole > 0.999 ? "full" : "used";
  return <Bar parts={[{ amount, kind, name: "used" }]} whole={whole} label={`${show(amount, resource)} of ${show(whole, resource)} ${resource} used`} />;
}

export function Tag({ kind, children }: { kind: string; children: ComponentChildren }) {
  return <span class={`tag ${kind}`}>{children}</span>;
}

export function Copy({ text, label = "Copy" }: { text: string | (() => Promise<string>); label?: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : await text());
      setSaid("Copied");
    } catch {
      setSaid("Not copied");
    }
    setTimeout(() => setSaid(""), 2000);
  };
  return (
    <button type="button" class="copy" onClick={() => void copy()}>
      <span aria-live="polite">{said || label}</span>
    </button>
  );
}

/** A panel beside a list, for one of its rows. Escape closes it, and the focus goes back to where it was. */
export function Panel(props: { title: ComponentChildren; close: () => void; children: ComponentChildren; name: string }) {
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.focus({ preventScroll: true });
    box.current?.scrollIntoView?.({ block: "nearest" });
    return () => before?.isConnected && before.focus({ preventScroll: true });
  }, [props.name]);
  return (
    <aside class="panel" ref={box} tabIndex={-1} aria-label={props.name} onKeyDown={(event) => event.key === "Escape" && props.close()}>
      <header>
        <h2>{props.title}</h2>
        <button type="button" class="close" aria-label="Close" onClick={props.close}>×</button>
      </header>
      {props.children}
    </aside>
  );
}

export function Dialog(props: { title: string; close: () => void; children: ComponentChildren; class?: string }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = box.current!;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog ref={box} class={props.class} aria-label={props.title} onCancel={props.close} onClick={(event) => event.target === box.current && props.close()}>
      {props.children}
    </dialog>
  );
}

/** Whether who looks may change something now, and if not, why. */
export function useMayChange(): { may: boolean; why: string } {
  const known = useStore(session);
  const at = useStore(place).params.get("at");
  if (!known || known.role === "viewer") return { may: false, why: "Your token may only read." };
  if (at) return { may: false, why: "This is the past: go back to the present to change something." };
  return { may: true, why: "" };
}

export function Filter(props: { value: string; change: (value: string) => void; label: string }) {
  return (
    <input type="search" class="filter" value={props.value} placeholder={props.label} aria-label={props.label}
      onInput={(event) => props.change(event.currentTarget.value)} />
  );
}

export function Select(props: { value: string; change: (value: string) => void; label: string; options: [string, string][] }) {
  return (
    <label class="select">
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.change(event.currentTarget.value)}>
        {props.options.map(([value, name]) => <option key={value} value={value} selected={value === props.value}>{name}</option>)}
      </select>
    </label>
  );
}
