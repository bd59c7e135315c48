// The live stream of all tabs: a shared worker holds the only connection, and tells the tabs when something changed.
export {};
interface Port { postMessage(message: unknown): void; start(): void; onmessage: ((event: MessageEvent) => void) | null }
const ports = new Set<Port>();
let online = false;
let source: EventSource | null = null;
let pause = 1000;
let timer: ReturnType<typeof setTimeout> | null = null;

function tell(message: unknown): void {
  for (const port of ports) port.postMessage(message);
}

function setOnline(next: boolean): void {
  online = next;
  tell({ online });
}

function changed(): void {
  // Many records come at once; the tabs hear of it at most four times a second.
  timer ??= setTimeout(() => {
    timer = null;
    tell({ changed: true });
  }, 250);
}

function connect(): void {
  source = new EventSource("api/v1/events");
  source.onopen = () => {
    pause = 1000;
    setOnline(true);
    changed();
  };
  for (const name of ["record", "objects"]) source.addEventListener(name, changed);
  source.onerror = () => {
    if (online) setOnline(false);
    if (source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
    source = null;
    if (!ports.size) return;
    setTimeout(() => !source && connect(), pause);
    pause = Math.min(pause * 2, 15000);
  };
}

addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0] as unknown as Port;
  ports.add(port);
  port.onmessage = ({ data }) => {
    if (data === "leave") {
      ports.delete(port);
      if (!ports.size) {
        source?.close();
        source = null;
      }
    }
    if (data === "retry" && source?.readyState !== EventSource.OPEN) {
      source?.close();
      pause = 1000;
      connect();
    }
  };
  port.start();
  port.postMessage({ online });
  if (!source) connect();
});
