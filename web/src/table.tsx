// A table of any number of rows: only those that can be seen are in the page. Rows keep their places while their figures
// change: a table is sorted when a person asks for it, and new rows come where they belong at that time.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { href, place } from "./router";
import { useStore } from "./store";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  sort?: (row: T) => string | number;
  class?: string;
}
interface Sorting { column: string; down: boolean }

const HEIGHT = 38;
const SPARE = 8;

function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

/** The rows in the order of the last time that it was asked for. */
function useOrder<T>(rows: T[], id: (row: T) => string, columns: Column<T>[], sorting: Sorting | null, held: boolean): T[] {
  const memory = useRef<{ sorting: Sorting | null; places: Map<string, number> }>({ sorting: null, places: new Map() });
  return useMemo(() => {
    const column = sorting && columns.find((one) => one.name === sorting.column);
    const value = column?.sort;
    const known = memory.current;
    const sorted = value ? rows.map((row) => ({ row, by: value(row) })).sort((a, b) => (sorting!.down ? -1 : 1) * compare(a.by, b.by)).map(({ row }) => row) : rows;
    if (!held || !value || known.sorting !== sorting) {
      memory.current = { sorting, places: new Map(sorted.map((row, index) => [id(row), index])) };
      return sorted;
    }
    // Old rows stay in their order; a new one comes after the row that it follows in the new order.
    const { places } = known;
    let last = -1;
    const ranked = sorted.filter((row) => places.has(id(row))).sort((a, b) => places.get(id(a))! - places.get(id(b))!);
    const fresh = new Map<string, T[]>();
    let before = "";
    for (const row of sorted) {
      const key = id(row);
      if (places.has(key)) before = key;
      else fresh.set(before, [...(fresh.get(before) ?? []), row]);
    }
    const result = [...(fresh.get("") ?? [])];
    for (const row of ranked) result.push(row, ...(fresh.get(id(row)) ?? []));
    memory.current = { sorting, places: new Map(result.map((row) => [id(row), ++last])) };
    return result;
  }, [rows, sorting, held, columns]);
}

export function Table<T>(props: {
  name: string;
  rows: T[];
  id: (row: T) => string;
  columns: Column<T>[];
  open?: (row: T) => Record<string, string>; // the parameters of the address that opens a row
  opened?: string;
  rowClass?: (row: T) => string;
  start?: Sorting;
  held?: boolean;
  empty?: ComponentChildren;
}) {
  const { rows, columns, id } = props;
  const [sorting, setSorting] = useState<Sorting | null>(props.start ?? null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const box = useRef<HTMLDivElement>(null);
  const { view, params } = useStore(place);
  const ordered = useOrder(rows, id, columns, sorting, props.held ?? true);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  if (!rows.length && props.empty) return <>{props.empty}</>;
  const first = Math.max(0, Math.min(Math.floor(top / HEIGHT), ordered.length) - SPARE);
  const last = Math.min(ordered.length, Math.ceil((top + height) / HEIGHT) + SPARE);
  const shown = ordered.slice(first, last);
  const sort = (column: Column<T>) =>
    setSorting((before) => ({ column: column.name, down: before?.column === column.name ? !before.down : false }));
  return (
    <div class="table" ref={box} tabIndex={0} role="region" aria-label={`${props.name}, ${ordered.length} rows`}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      <table aria-rowcount={ordered.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} class={column.class} scope="col"
                aria-sort={sorting?.column === column.name ? (sorting.down ? "descending" : "ascending") : undefined}>
                {column.sort ? (
                  <button type="button" onClick={() => sort(column)}>
                    {column.name}<i aria-hidden="true">{sorting?.column === column.name ? (sorting.down ? "▾" : "▴") : ""}</i>
                  </button>
                ) : column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr class="gap" aria-hidden="true" style={{ height: `${first * HEIGHT}px` }} />}
          {shown.map((row, index) => {
            const key = id(row);
            const address = props.open && href(view, { ...Object.fromEntries(params), ...props.open(row) });
            return (
              <tr key={key} aria-rowindex={first + index + 2} class={`${props.rowClass?.(row) ?? ""} ${props.opened === key ? "opened" : ""} ${address ? "opens" : ""}`}>
                {columns.map((column, place) => {
                  const cell = column.cell(row);
                  return place === 0 ? (
                    <th key={column.name} class={column.class} scope="row">
                      {address ? <a href={address} data-view="part" aria-current={props.opened === key || undefined}>{cell}</a> : cell}
                    </th>
                  ) : <td key={column.name} class={column.class}>{cell}</td>;
                })}
              </tr>
            );
          })}
          {last < ordered.length && <tr class="gap" aria-hidden="true" style={{ height: `${(ordered.length - last) * HEIGHT}px` }} />}
        </tbody>
      </table>
    </div>
  );
}
