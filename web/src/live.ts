// Whether the server can be reached, and a number that grows when something changed there.
import { Store } from "./store";

export const online = new Store<boolean | null>(null); // null: not known yet
export const changes = new Store(0);
let leave = () => {};
let again = () => {};

function hear(data: { online?: boolean; changed?: boolean }): void {
  if (data.online !== undefined && !(online.value === null && !data.online)) online.value = data.online;
  if (data.changed) changes.value += 1;
}

function shared(): void {
  const worker = new SharedWorker("stream.js", { type: "module", name: "bursar-stream" });
  worker.port.onmessage = ({ data }) => hear(data);
  worker.port.start();
  leave = () => worker.port.postMessage("leave");
  again = () => worker.port.postMessage("retry");
}

/** Where browsers have no shared workers, each tab has a stream of its own. */
function alone(): void {
  let source: EventSource | null = null;
  const open = () => {
    source?.close();
    source = new EventSource("api/v1/events");
    source.onopen = () => hear({ online: true, changed: true });
    source.onerror = () => hear({ online: false });
    for (const name of ["record", "objects"]) source.addEventListener(name, () => hear({ changed: true }));
  };
  open();
  leave = () => source?.close();
  again = open;
}

export function connect(): void {
  if (typeof SharedWorker === "undefined") alone();
  else shared();
  addEventListener("pagehide", () => leave());
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}

export function retry(): void {
  again();
  changes.value += 1;
}
