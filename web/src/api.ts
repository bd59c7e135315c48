// Requests to the server, and hooks that keep what they found up to date.
import { useEffect, useRef, useState } from "preact/hooks";
import { changes, online } from "./live";
import { place } from "./router";
import { Store, useStore } from "./store";
import type { Info, Page, Problem, SessionInfo } from "./types";

export const session = new Store<SessionInfo | null>(null);
export const info = new Store<Info | null>(null);

export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly problem: Problem | null = null) {
    super(message);
  }
}

async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers: { ...init.headers, "X-Bursar-CSRF": session.value?.csrf ?? "" } });
  } catch {
    if (init.signal?.aborted) throw new ApiError(0, "aborted");
    throw new ApiError(0, "The server does not answer.");
  }
  if (response.ok) return response;
  const problem = (await response.json().catch(() => null)) as Problem | null;
  if (response.status === 401 && session.value?.role) await readSession();
  throw new ApiError(response.status, problem?.detail ?? `The server answered ${response.status}.`, problem);
}

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send(`api/v1${path}`, signal ? { signal } : {})).json()) as T;
}

export async function post<T>(path: string, body: string, type = "application/yaml"): Promise<T> {
  const response = await send(`api/v1${path}`, { method: "POST", body, headers: { "Content-Type": type } });
  return (await response.json()) as T;
}

export async function readSession(): Promise<void> {
  session.value = (await (await send("session")).json()) as SessionInfo;
}

export async function login(token: string): Promise<void> {
  const headers = { "Content-Type": "application/json" };
  await send("login", { method: "POST", body: JSON.stringify({ token }), headers });
  await readSession();
}

export async function logout(): Promise<void> {
  await send("logout", { method: "POST" });
  await readSession();
}

/** A path with parameters; empty ones are left out. */
export function query(path: string, params: Record<string, string | number> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== "") search.set(name, String(value));
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** namespace/name as two segments of a path. */
export function claimPath(key: string): string {
  const cut = key.indexOf("/");
  const namespace = cut < 0 ? "-" : key.slice(0, cut);
  return `/claims/${encodeURIComponent(namespace)}/${encodeURIComponent(key.slice(cut + 1))}`;
}

export interface Loaded<T> { data: T | null; error: ApiError | null; loading: boolean }
type Load<T> = (signal: AbortSignal, partly: (data: T) => void) => Promise<T>;

/**
 * What `load` finds, and again when the server has something new. The old data stay until the new ones are there. A
 * question that took long is not asked again at once. Nothing is asked while the page is hidden or shows the past.
 */
export function useLoaded<T>(key: string, load: Load<T> | null, follow = true): Loaded<T> {
  const [state, setState] = useState<Loaded<T> & { key: string }>({ data: null, error: null, loading: true, key });
  const current = useRef({ key, load });
  current.current = { key, load };
  const at = useStore(place).params.get("at") ?? "";
  const live = follow && !at;
  useEffect(() => {
    if (!load) return;
    const abort = new AbortController();
    let timer = 0;
    let running = false;
    let wanted = false;
    let took = 0;
    // The beginning of a long list is shown while the rest comes, unless an older list is there already.
    const partly = (data: T) => {
      if (abort.signal.aborted) return;
      setState((before) => (before.key === key && before.data !== null ? before : { data, error: null, loading: true, key }));
    };
    const run = async () => {
      running = true;
      wanted = false;
      const begun = performance.now();
      try {
        const data = await current.current.load!(abort.signal, partly);
        if (!abort.signal.aborted) setState({ data, error: null, loading: false, key });
      } catch (error) {
        if (abort.signal.aborted) return;
        const known = error instanceof ApiError ? error : new ApiError(0, String(error));
        setState((before) => ({ data: before.key === key ? before.data : null, error: known, loading: false, key }));
        if (known.status === 429 || known.status === 503) wanted = true;
      }
      took = performance.now() - begun;
      running = false;
      if (wanted) later();
    };
    const later = () => {
      wanted = true;
      if (running || timer || document.hidden) return;
      timer = window.setTimeout(() => {
        timer = 0;
        if (!document.hidden && !abort.signal.aborted) void run();
      }, Math.max(700, took * 6));
    };
    const seen = () => wanted && !running && later();
    void run();
    const stops = [() => document.removeEventListener("visibilitychange", seen)];
    document.addEventListener("visibilitychange", seen);
    if (live) stops.push(changes.listen(later));
    return () => {
      abort.abort();
      clearTimeout(timer);
      for (const stop of stops) stop();
    };
  }, [key, load === null, live]);
  return state.key === key ? state : { data: null, error: null, loading: load !== null };
}

/** One answer, of the moment that the page shows. */
export function useApi<T>(path: string | null, params: Record<string, string | number> = {}, follow = true): Loaded<T> {
  const at = useStore(place).params.get("at") ?? "";
  const address = path === null ? "" : query(path, { at, ...params }); // an operation without moments gets an empty one
  return useLoaded<T>(address, path === null ? null : (signal) => read<T>(address, signal), follow);
}

/** All rows of a list. Pages are small, so that no answer stops the page while it is decoded. */
export function useList<T>(path: string | null, params: Record<string, string> = {}): Loaded<Page<T>> {
  const at = useStore(place).params.get("at") ?? "";
  const address = path === null ? "" : query(path, { ...params, limit: 500, at });
  const load = async (signal: AbortSignal, partly: (data: Page<T>) => void) => {
    const first = await read<Page<T>>(address, signal);
    const items = [...first.items];
    let next = first.continue;
    if (next) partly(first);
    while (next) {
      const more = await read<Page<T>>(query(path!, { ...params, limit: 2000, continue: next }), signal);
      items.push(...more.items);
      next = more.continue;
    }
    return { ...first, items, remaining: 0, continue: "" };
  };
  return useLoaded<Page<T>>(address, path === null ? null : load);
}

/** Keep `info` up to date: the head of every page shows it. */
export function followInfo(): void {
  let timer = 0;
  let last = -1000;
  const later = () => {
    if (timer || document.hidden) return;
    timer = window.setTimeout(look, Math.max(0, last + 1000 - performance.now()));
  };
  const look = async () => {
    last = performance.now();
    try {
      info.value = await read<Info>("");
      if (online.value === false) online.value = true;
    } catch (error) {
      if (error instanceof ApiError && error.status === 0) online.value = false;
    } finally {
      timer = 0;
    }
  };
  later();
  changes.listen(later);
  document.addEventListener("visibilitychange", later);
}

/** The server's time, as far as this page knows it: ages are against it, not against the clock of this machine. */
export function serverNow(time?: string): number {
  return Date.parse(time ?? info.value?.moment.time ?? new Date().toISOString());
}
