// Ages, against the server's time.
import { info } from "./api";
import { ago, clock } from "./quantity";
import type { Moment } from "./types";

export function since(text: string, moment?: Moment): string {
  const now = moment?.time ?? info.value?.moment.time;
  return now ? `${ago(text, Date.parse(now))} ago` : clock(text);
}
