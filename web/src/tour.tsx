// A short tour over the demo organisation, for the first visit.
import { useState } from "preact/hooks";
import { go, href } from "./router";
import { Dialog } from "./ui";

const STEPS: [string, string, string][] = [
  ["", "An organisation at work", "This demo has eight teams, seven nodes and a quota of every dialect. Pods come and go every two seconds, so everything you see is live. The overview says who has what, and what of the free GPUs a waiting pod could really use."],
  ["quotas", "Quotas of all dialects", "vision, speech and robotics lend each other what they do not use. ads and search share a pool of nodes by runtime quota. lab has a tree of groups. chat gets parts of GPUs. Bars show used, borrowed and lent; the picture below shows who lends to whom."],
  ["queue", "Why does it wait?", "Each waiting claim has a place in the queue and a reason in words. Open you/first: it asks for 3 GPUs, its team may have 2. Below the reason are fixes, each tried out on a copy of the cluster."],
  ["history", "Back to any moment", "Every decision is in a journal. Click into a chart or move the slider, and all pages show the cluster as it was then. Addresses keep the moment, so you can share them."],
  ["plan", "Look before you apply", "Change a quota on paper and see who starts, who is evicted and who loses what it borrowed. Then apply it, or don't. Every change can be undone."],
];
const SEEN = "bursar-tour-seen";

export function tourIsNew(): boolean {
  try {
    return !localStorage.getItem(SEEN);
  } catch {
    return false;
  }
}

export function Tour({ close }: { close: () => void }) {
  const [step, setStep] = useState(0);
  const [view, title, text] = STEPS[step]!;
  const end = () => {
    try {
      localStorage.setItem(SEEN, "yes");
    } catch { /* then it is shown again */ }
    close();
  };
  const move = (to: number) => {
    setStep(to);
    go(href(STEPS[to]![0]));
  };
  return (
    <Dialog title="Tour" close={end} class="tour">
      <p class="note">{step + 1} of {STEPS.length}</p>
      <h2>{title}</h2>
      <p>{text}</p>
      <div class="buttons">
        <button type="button" onClick={end}>{step + 1 < STEPS.length ? "Skip the tour" : "Close"}</button>
        {step > 0 && <button type="button" onClick={() => move(step - 1)}>Back</button>}
        {step + 1 < STEPS.length ? <button type="button" class="primary" onClick={() => move(step + 1)}>Next</button> : <button type="button" class="primary" onClick={end}>Begin{view ? "" : ""}</button>}
      </div>
    </Dialog>
  );
}
