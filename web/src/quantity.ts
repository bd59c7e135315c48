// Amounts for people. Decisions are the server's; bars and sums on a page may round.
const SUFFIX: Record<string, number> = {
  m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
  Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3, Ti: 1024 ** 4, Pi: 1024 ** 5,
};

export function parse(text: string | undefined): number {
  if (!text) return 0;
  const match = /^(-?[0-9.]+)([A-Za-z]*)$/.exec(text);
  if (!match) return 0;
  return Number(match[1]) * (match[2] ? (SUFFIX[match[2]] ?? 1) : 1);
}

const BYTES = /(^|\/)(memory|vram|ephemeral-storage|storage)$/;

export function isBytes(resource: string): boolean {
  return BYTES.test(resource);
}

export function show(amount: number, resource: string): string {
  if (!isBytes(resource)) return round(amount);
  for (const [unit, size] of [["Ti", 1024 ** 4], ["Gi", 1024 ** 3], ["Mi", 1024 ** 2], ["Ki", 1024]] as const)
    if (Math.abs(amount) >= size) return round(amount / size) + unit;
  return round(amount);
}

export function round(amount: number): string {
  const digits = Math.abs(amount) >= 100 || Number.isInteger(amount) ? 0 : Math.abs(amount) >= 10 ? 1 : 2;
  return amount.toLocaleString("en", { maximumFractionDigits: digits });
}

/** nvidia.com/gpu is gpu to people. */
export function brief(resource: string): string {
  return resource.includes("/") ? resource.slice(resource.lastIndexOf("/") + 1) : resource;
}

export function shownAmounts(...given: Record<string, string>[]): string {
  return given
    .flatMap((amounts) => Object.entries(amounts))
    .filter(([name]) => name !== "pods")
    .sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b))
    .map(([name, text]) => `${text} ${brief(name)}`)
    .join(", ");
}

/** GPUs first: they are what this is about. */
export function rank(resource: string): number {
  if (/gpu$/.test(resource)) return 0;
  if (/tflops|vram|gpu|mig|compute/.test(resource)) return 1;
  return resource === "cpu" ? 2 : resource === "memory" ? 3 : 4;
}

export function ago(from: string, now: number): string {
  return span(now - Date.parse(from));
}

export function span(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 && minutes < 10 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  return `${Math.floor(hours / 24)}d`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export function clock(text: string): string {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : CLOCK.format(date);
}

export function when(text: string): string {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : `${DAY.format(date)}, ${CLOCK.format(date)}`;
}
