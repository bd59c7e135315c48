// Views have addresses: one path segment, and parameters. `at` stays while one moves from view to view.
import { Store } from "./store";

export interface Place { view: string; params: URLSearchParams }

function here(): Place {
  return { view: location.pathname.split("/").at(-1) ?? "", params: new URLSearchParams(location.search) };
}

export const place = new Store<Place>(here());

export function href(view: string, params: Record<string, string> = {}): string {
  const query = new URLSearchParams(params);
  const at = place.value.params.get("at");
  if (at && !query.has("at")) query.set("at", at);
  for (const [name, value] of [...query]) if (!value) query.delete(name);
  const text = query.toString();
  return `${view || "./"}${text ? `?${text}` : ""}`;
}

export function go(address: string, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  place.value = here();
}

/** The same view with some parameters changed; an empty value removes one. */
export function change(params: Record<string, string>, replace = true): void {
  const all = Object.fromEntries(place.value.params);
  go(href(place.value.view, { ...all, ...params, ...(params.at === "" ? {} : {}) }), replace);
}

/** Back to the present, in the same view. */
export function toPresent(): void {
  const query = new URLSearchParams(place.value.params);
  query.delete("at");
  const text = query.toString();
  go(`${place.value.view || "./"}${text ? `?${text}` : ""}`);
}

addEventListener("popstate", () => {
  place.value = here();
});

// Links to views do not load the page anew.
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.("a[data-view]");
  if (!(link instanceof HTMLAnchorElement)) return;
  event.preventDefault();
  go(link.href);
  if (link.dataset.view === "page") {
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
});
