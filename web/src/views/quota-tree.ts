// The quotas of all dialects as one hierarchy.
import { parse } from "../quantity";
import type { QuotaAmounts, QuotaRow } from "../types";

export const DIALECTS: Record<string, string> = {
  trees: "Quota trees",
  pools: "Pool quotas (Koordinator)",
  elastic: "Elastic quotas (nos)",
  limits: "GPU quotas of namespaces (TensorFusion)",
  crossquota: "CPU pods on GPU nodes (CrossQuota)",
};

export interface Branch {
  id: string;
  label: string;
  depth: number;
  quota: QuotaRow | null;
  children: Branch[];
}

export function quotaLabel(quota: QuotaRow): string {
  if (quota.node) return `${quota.name}:${quota.node}`;
  return quota.namespace ? `${quota.namespace}/${quota.name}` : quota.name;
}

function own(quota: QuotaRow): string {
  return quota.node || quota.name;
}

function shortLabel(quota: QuotaRow): string {
  if (quota.node) return quota.node;
  return quota.namespace && quota.namespace !== quota.name ? `${quota.namespace}/${quota.name}` : quota.name;
}

export function hierarchy(quotas: QuotaRow[]): Branch[] {
  const dialects = new Map<string, QuotaRow[]>();
  for (const quota of quotas) { const known = dialects.get(quota.policy); if (known) known.push(quota); else dialects.set(quota.policy, [quota]); }
  return [...dialects].map(([policy, rows]) => ({
    id: policy, label: DIALECTS[policy] ?? policy, depth: 0, quota: null, children: branches(policy, rows),
  }));
}

function branches(policy: string, rows: QuotaRow[]): Branch[] {
  const byName = new Map(rows.map((row) => [`${row.tree} ${own(row)}`, row]));
  const children = new Map<QuotaRow | null, QuotaRow[]>();
  for (const row of rows) {
    const parent = (row.parent && byName.get(`${row.tree} ${row.parent}`)) || null;
    const key = parent === row ? null : parent;
    const known = children.get(key);
    if (known) known.push(row);
    else children.set(key, [row]);
  }
  const seen = new Set<QuotaRow>();
  const grow = (row: QuotaRow, depth: number): Branch => {
    seen.add(row);
    const below = (children.get(row) ?? []).filter((child) => !seen.has(child));
    return {
      id: `${policy} ${row.tree} ${row.namespace} ${row.name} ${row.node}`, label: shortLabel(row), depth, quota: row,
      children: below.map((child) => grow(child, depth + 1)),
    };
  };
  const roots = (children.get(null) ?? []).map((row) => grow(row, 1));
  return [...roots, ...rows.filter((row) => !seen.has(row)).map((row) => grow(row, 1))];
}

export interface Loan { from: QuotaRow; to: QuotaRow; amount: number }

/** Who lends to whom: what is borrowed of a resource, shared out over the lenders in proportion, as the server does. */
export function loans(quotas: QuotaRow[], resource: string): Loan[] {
  const groups = new Map<string, QuotaRow[]>();
  for (const quota of quotas) {
    const key = `${quota.policy} ${quota.tree}`;
    const known = groups.get(key);
    if (known) known.push(quota);
    else groups.set(key, [quota]);
  }
  const found: Loan[] = [];
  const amount = (quota: QuotaRow, side: keyof QuotaAmounts) => parse(quota.resources[resource]?.[side]);
  for (const group of groups.values()) {
    const lenders = group.filter((quota) => amount(quota, "lent") > 0);
    const borrowers = group.filter((quota) => quota.resources[resource]?.idle !== "" && amount(quota, "borrowed") > 0);
    const lent = lenders.reduce((sum, quota) => sum + amount(quota, "lent"), 0);
    const borrowed = borrowers.reduce((sum, quota) => sum + amount(quota, "borrowed"), 0);
    if (!lent || !borrowed) continue;
    for (const from of lenders)
      for (const to of borrowers)
        found.push({ from, to, amount: (amount(from, "lent") * amount(to, "borrowed")) / Math.max(lent, borrowed) });
  }
  return found;
}

/** What a bar of this quota ends with. */
export function whole(amounts: QuotaAmounts): number {
  return Math.max(parse(amounts.used), parse(amounts.max), parse(amounts.runtime), parse(amounts.min));
}
