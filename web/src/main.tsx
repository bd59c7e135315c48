// The frame of all pages: who looks, where, at which moment; and what is shown when the server is gone.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { followInfo, info, login, logout, readSession, session, useApi } from "./api";
import { connect, online, retry } from "./live";
import { when } from "./quantity";
import { href, place, toPresent } from "./router";
import { Search } from "./search";
import { useStore } from "./store";
import { TimeBar } from "./timebar";
import { Tour, tourIsNew } from "./tour";
import { Failure, Loading } from "./ui";
import { ClaimsView } from "./views/claims";
import { HistoryView } from "./views/history";
import { NodesView } from "./views/nodes";
import { OverviewView } from "./views/overview";
import { PlanView } from "./views/plan";
import { QueueView } from "./views/queue";
import { QuotasView } from "./views/quotas";
import { ReportsView } from "./views/reports";
import "./style.css";

const VIEWS: [string, string, () => preact.JSX.Element][] = [
  ["", "Overview", OverviewView],
  ["quotas", "Quotas", QuotasView],
  ["queue", "Queue", QueueView],
  ["claims", "Claims", ClaimsView],
  ["nodes", "Nodes and GPUs", NodesView],
  ["history", "History", HistoryView],
  ["plan", "What-if and plan", PlanView],
  ["reports", "Reports", ReportsView],
];

function theme(next?: string): string {
  try {
    if (next !== undefined) localStorage.setItem("bursar-theme", next);
    const chosen = next ?? localStorage.getItem("bursar-theme") ?? "";
    document.documentElement.dataset.theme = chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  } catch {
    document.documentElement.dataset.theme = next || "light";
  }
  return document.documentElement.dataset.theme;
}

function ThemeButton() {
  const [now, setNow] = useState(theme());
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const update = () => setNow(theme());
    media.addEventListener("change", update);
    return () => media.removeEventListener("change", update);
  }, []);
  const other = now === "dark" ? "light" : "dark";
  return <button type="button" class="quiet" aria-label={`Show in ${other} colours`} title={`Show in ${other} colours`} onClick={() => setNow(theme(other))}>{now === "dark" ? "☀" : "☾"}</button>;
}

function Connection() {
  const state = useStore(online);
  const known = useStore(info);
  const at = useStore(place).params.get("at");
  if (at) return <span class="connection past" title="The page shows a moment of the past"><i />past</span>;
  const [kind, text] = state === false ? ["gone", "reconnecting"] : state ? ["live", "live"] : ["", "connecting"];
  return <span class={`connection ${kind}`} role="status" title={known ? `Record ${known.moment.seq}, ${when(known.moment.time)}` : ""}><i />{text}</span>;
}

function Login() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState("");
  const send = async (event: Event) => {
    event.preventDefault();
    try {
      await login(token);
      start();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <main class="login" id="main">
      <form onSubmit={(event) => void send(event)}>
        <h1><img src="icon.svg" alt="" width="32" height="32" />Bursar</h1>
        <p>This server asks for a token. It stays in a cookie that scripts cannot read.</p>
        <label>Token<input type="password" name="token" autocomplete="current-password" required value={token} onInput={(event) => setToken(event.currentTarget.value)} /></label>
        {problem && <p class="reason no" role="alert">{problem}</p>}
        <button type="submit" class="primary">Sign in</button>
      </form>
    </main>
  );
}

function Shell() {
  const { view, params } = useStore(place);
  const known = useStore(info);
  const who = useStore(session)!;
  const state = useStore(online);
  const [tour, setTour] = useState(false);
  const [searching, setSearching] = useState(false);
  const at = params.get("at");
  const here = VIEWS.find(([name]) => name === view) ?? VIEWS[0]!;
  const View = here[2];
  useEffect(() => { document.title = here[0] ? `${here[1]} · Bursar` : "Bursar"; }, [here]);
  useEffect(() => { if (known?.demo && tourIsNew()) setTour(true); }, [known?.demo]);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const typing = (event.target as Element).closest("input, textarea, select, dialog");
      if ((event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
        event.preventDefault();
        setSearching(true);
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>Skip to the page</a>
      <header class="top">
        <a class="brand" href={href("")} data-view="page"><img src="icon.svg" alt="" width="24" height="24" />Bursar</a>
        <Connection />
        <span class="spring" />
        <button type="button" class="searcher" onClick={() => setSearching(true)}>Search <kbd>/</kbd></button>
        {known?.demo && <button type="button" class="quiet" onClick={() => setTour(true)}>Tour</button>}
        <ThemeButton />
        {who.needsToken && <button type="button" class="quiet" title={`Signed in as ${who.name}, ${who.role}`} onClick={() => void logout()}>Sign out</button>}
      </header>
      <nav aria-label="Views">
        {VIEWS.map(([name, title]) => <a key={name} href={href(name)} data-view="page" aria-current={name === here[0] ? "page" : undefined}>{title}{name === "queue" && known && !at && known.waiting > 0 && <b class="count" aria-label={`${known.waiting} waiting`}>{known.waiting}</b>}</a>)}
      </nav>
      <main id="main" tabIndex={-1}>
        <div class="heading"><h1>{here[1]}</h1><TimeBar /></div>
        {state === false && <div class="banner gone" role="alert">The server cannot be reached. What you see is what it said last. <button type="button" onClick={() => retry()}>Try again</button></div>}
        {at && <Past at={at} />}
        <View key={here[0]} />
      </main>
      {searching && <Search close={() => setSearching(false)} />}
      {tour && <Tour close={() => setTour(false)} />}
    </>
  );
}

function Past({ at }: { at: string }) {
  const found = useApi<{ moment: { time: string; seq: number } }>("/overview");
  return (
    <div class="banner past" role="status">
      {found.error ? found.error.message : <>Everything here is as it was {found.data ? <>on <strong>{when(found.data.moment.time)}</strong>, after record {found.data.moment.seq}</> : `at ${at}`}.</>}{" "}
      <button type="button" onClick={toPresent}>Back to the present</button>
    </div>
  );
}

let started = false;
function start(): void {
  if (started || !session.value?.role) return;
  started = true;
  connect();
  followInfo();
}

function App() {
  const who = useStore(session);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    readSession().then(start, (problem) => setError(problem));
  }, []);
  if (error && !who) return <main id="main"><h1>Bursar</h1><Failure error={error as never} /><button type="button" onClick={() => location.reload()}>Load again</button></main>;
  if (!who) return <main id="main"><h1 class="hidden">Bursar</h1><Loading /></main>;
  return who.role ? <Shell /> : <Login />;
}

theme();
render(<App />, document.getElementById("app")!);
