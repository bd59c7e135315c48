// The slider that shows the whole application as it was at a moment.
import { useEffect, useState } from "preact/hooks";
import { useApi } from "./api";
import { when } from "./quantity";
import { change, place, toPresent } from "./router";
import { useStore } from "./store";
import type { Activity } from "./types";

export function TimeBar() {
  const { params, view } = useStore(place);
  const at = params.get("at") ?? "";
  const [open, setOpen] = useState(view === "history" || Boolean(at));
  useEffect(() => { if (view === "history" || at) setOpen(true); }, [view, Boolean(at)]);
  if (!open) return <button type="button" class="quiet" onClick={() => setOpen(true)}>Go to a moment</button>;
  return <Slider at={at} close={() => { setOpen(false); if (at) toPresent(); }} />;
}

function Slider({ at, close }: { at: string; close: () => void }) {
  const found = useApi<Activity>("/activity", { from: "-1m", at: "" });
  const [moved, setMoved] = useState<number | null>(null);
  const begins = found.data ? Date.parse(found.data.begins) : 0;
  const now = found.data ? Date.parse(found.data.moment.time) : 0;
  const given = /^\d+$/.test(at) ? null : Date.parse(at);
  const value = moved ?? (given && !Number.isNaN(given) ? given : now);
  useEffect(() => {
    if (moved === null) return;
    const timer = setTimeout(() => {
      if (moved >= now - 1000) toPresent();
      else change({ at: new Date(moved).toISOString().replace(/\.\d+/, "") });
      setMoved(null);
    }, 250);
    return () => clearTimeout(timer);
  }, [moved]);
  if (!begins || now - begins < 2000) return null;
  const text = at || moved !== null ? (moved === null && /^\d+$/.test(at) ? `record ${at}` : when(new Date(value).toISOString())) : "now";
  return (
    <div class="timebar">
      <label><span>Moment</span>
        <input type="range" min={begins} max={now} step={1000} value={value} aria-valuetext={text} onInput={(event) => setMoved(Number(event.currentTarget.value))} />
      </label>
      <output>{text}</output>
      <button type="button" class="close" aria-label="Close, and show the present" onClick={close}>×</button>
    </div>
  );
}
