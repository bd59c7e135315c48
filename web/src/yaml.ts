// Manifests as YAML, for reading and for pasting into kubectl.
const PLAIN = /^[A-Za-z_/][A-Za-z0-9_./-]*$/;
const WORDS = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"]);

export function yaml(value: unknown): string {
  return `${write(value, "")}\n`;
}

function write(value: unknown, indent: string): string {
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return value.map((item) => `${indent}- ${nested(item, `${indent}  `).trimStart()}`).join("\n");
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return "{}";
    return entries
      .map(([key, item]) => {
        const name = `${indent}${scalar(key)}:`;
        if (item === null || typeof item !== "object") return `${name} ${scalar(item)}`;
        const empty = Array.isArray(item) ? !item.length : !Object.keys(item).length;
        return empty ? `${name} ${write(item, "")}` : `${name}\n${write(item, `${indent}  `)}`;
      })
      .join("\n");
  }
  return scalar(value);
}

function nested(item: unknown, indent: string): string {
  return item !== null && typeof item === "object" ? write(item, indent) : scalar(item);
}

function scalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value) ?? "null";
  return PLAIN.test(value) && !WORDS.has(value.toLowerCase()) ? value : JSON.stringify(value);
}
