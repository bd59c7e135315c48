// The answers of the API that the dashboard reads (docs/api.md).
export type Amounts = Record<string, string>;
export interface Moment { seq: number; resourceVersion: string; time: string; digest: string }
export interface Page<T> { items: T[]; moment: Moment; remaining: number; continue: string }
export interface Info {
  version: string; moment: Moment; started: string; claims: number; waiting: number; objects: number;
  readOnly: boolean; demo: boolean;
}
export interface SessionInfo { needsToken: boolean; name: string; role: string; csrf: string }
export interface ClaimRow {
  uid: string; namespace: string; name: string; phase: string; state: string; node: string; priority: number;
  preemptible: boolean; created: string; requests: Amounts; labels: Amounts; quotas: string[]; quotaNames: string[];
  group: string; leaving: boolean; waitsFor: string[]; borrowing: boolean; reason: string; message: string;
  decidedAt: string; decidedBy: number; gpus: Amounts;
}
export interface QueueRow {
  position: number; uid: string; namespace: string; name: string; priority: number; created: string; state: string;
  requests: Amounts; never: boolean; group: string; reason: string; message: string; decidedBy: number; gpus: Amounts;
}
export interface QuotaAmounts {
  used: string; min: string; max: string; runtime: string; borrowed: string; idle: string; lent: string;
}
export interface QuotaRow {
  policy: string; kind: string; namespace: string; name: string; node: string; parent: string; tree: string;
  resources: Record<string, QuotaAmounts>; exceeded: boolean; message: string; account: string;
}
export interface NodeRow {
  name: string; ready: boolean; labels: Amounts; allocatable: Amounts; used: Amounts; leaving: Amounts; pods: number;
  gpus: number;
}
export interface GpuRow { name: string; node: string; model: string; capacity: Amounts; used: Amounts; claims: string[] }
export interface ResourceTotal {
  resource: string; allocatable: string; used: string; reserved: string; free: string; usable: string; largest: string;
  largestClaim: string;
}
export interface TeamTotal {
  namespace: string; used: Amounts; wanted: Amounts; running: number; waiting: number; borrowing: number;
}
export interface PoolTotal { name: string; nodes: number; ready: number; allocatable: Amounts; used: Amounts }
export interface Overview { moment: Moment; resources: ResourceTotal[]; teams: TeamTotal[]; pools: PoolTotal[] }
export interface Activity {
  moment: Moment; complete: boolean; begins: string; start: string; stepSeconds: number; points: number;
  series: { resource: string; used: string[]; waited: string[] }[];
  teams: { namespace: string; resource: string; used: string; waited: string }[];
  submitted: number[]; started: number[]; evicted: number[]; finished: number[];
}
export interface CheckNode {
  title: string; passed: boolean; note: string; reason: string; binding: boolean; checks: CheckNode[];
}
export interface FixEdit { kind: string; key: string; field: string; before: unknown; after: unknown; anew: boolean }
export interface Fix {
  code: string; sentence: string; edits: FixEdit[]; waitsFor: string[]; endsAt: string; evicts: string[]; node: string;
}
export interface Explanation {
  claim: ClaimRow; tree: CheckNode; text: string; moment: Moment; fixes: Fix[]; fixesComplete: boolean;
}
export interface QuotaExplanation {
  quota: QuotaRow; tree: CheckNode; text: string; counts: number; waiting: string[]; borrowers: string[];
}
export interface DecisionRow {
  seq: number; time: string; cause: string; subjects: string[]; claim: string; outcome: string; node: string;
  reason: string; message: string; victims: string[]; by: string; digest: string;
}
export interface ObjectOutcome { kind: string; key: string; result: string; resourceVersion: string }
export interface PodNews { time: string; pod: string; what: string; node: string; reason: string }
export interface Change {
  id: number; moment: Moment; verb: string; objects: ObjectOutcome[]; pods: PodNews[]; dryRun: boolean; undoes: number;
  lost: string[]; warnings: string[];
}
export interface Plan {
  objects: ObjectOutcome[]; starts: string[]; evicted: PodNews[]; waits: PodNews[]; gone: string[]; stranded: PodNews[];
  borrowing: { quota: string; resource: string; before: string; after: string }[]; horizon: string; moment: Moment;
  evictionsWithin: string; warnings: string[];
}
export interface TrialRow {
  pod: string; verdict: string; node: string; reason: string; message: string; victims: string[]; ahead: number;
}
export interface WhatIf {
  pods: TrialRow[]; evicted: string[]; moment: Moment; starts: string[]; held: string[]; waits: string[];
  warnings: string[];
}
export interface ObjectVersion {
  seq: number; time: string; resourceVersion: string; result: string;
  fields: { path: string; before: unknown; after: unknown }[];
}
export interface ObjectHistory { kind: string; key: string; items: ObjectVersion[]; decisions: DecisionRow[]; moment: Moment }
export interface Problem {
  title: string; status: number; detail: string; object: string; field: string; line: number; document: number;
}
