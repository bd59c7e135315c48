// Builds the dashboard into the Python package (or another folder), and notes of which sources and what it made.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, readdir, writeFile } from "node:fs/promises";

const target = process.argv[2] ?? "../src/bursar/server/web";
await mkdir(target, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx", stream: "src/stream.ts" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  outdir: target,
});
for (const name of ["index.html", "icon.svg"]) await copyFile(`src/${name}`, `${target}/${name}`);

const hash = (data) => createHash("sha256").update(data).digest("hex");
async function fingerprint(root, names) {
  const lines = [];
  for (const name of names.sort()) lines.push(`${name} ${hash(await readFile(`${root}/${name}`))}\n`);
  return hash(lines.join(""));
}
const found = await readdir("src", { recursive: true, withFileTypes: true });
const sources = found.filter((one) => one.isFile()).map((one) => `${one.parentPath}/${one.name}`);
const made = [await fingerprint(".", [...sources, "build.mjs", "package-lock.json", "tsconfig.json"]), await fingerprint(target, await readdir(target))];
await writeFile("built-from", `${made.join("\n")}\n`);
