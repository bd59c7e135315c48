// A chart over time. Colours come from the page, so that it is readable in light and dark.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const MINUTES = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export interface Line { name: string; values: (number | null)[]; kind: string; bars?: boolean }

export function Chart(props: { times: number[]; lines: Line[]; label: string; format: (value: number) => string; pick?: (time: number) => void; height?: number }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { times, lines, label, format } = props;
  const shape = `${label} ${lines.map((line) => line.name + line.kind).join()}`;
  const given = useRef(props);
  given.current = props;
  useEffect(() => {
    const element = box.current!;
    const style = getComputedStyle(element);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim() || "#888";
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const options: uPlot.Options = {
      width: element.clientWidth || 600,
      height: props.height ?? 220,
      cursor: { points: { size: 6 }, drag: { setScale: false } },
      legend: { live: true },
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.08)] } },
      axes: [{ ...axis, values: (_plot, values, _axis, _space, step) => values.map((value) => (step >= 86400 ? DAY : step < 60 ? SECONDS : MINUTES).format(value * 1000)) }, { ...axis, size: 62, values: (_plot, values) => values.map((value) => format(value)) }],
      series: [
        { value: (_plot, value) => (value == null ? "–" : new Date(value * 1000).toLocaleTimeString("en-GB")) },
        ...lines.map((line): uPlot.Series => ({
          label: line.name,
          stroke: colour(line.kind),
          width: line.bars ? 0 : 2,
          fill: `${colour(line.kind)}${line.bars ? "cc" : "22"}`,
          points: { show: false },
          ...(line.bars ? { paths: uPlot.paths.bars!({ size: [0.7, 24] }) } : { paths: uPlot.paths.stepped!({ align: 1 }) }),
          value: (_plot, value) => (value == null ? "–" : format(value)),
        })),
      ],
    };
    const made = new uPlot(options, [times, ...lines.map((line) => line.values)], element);
    plot.current = made;
    const click = () => {
      const index = made.cursor.idx;
      if (index != null) given.current.pick?.(given.current.times[index]!);
    };
    made.over.addEventListener("click", click);
    const observer = new ResizeObserver(() => {
      if (element.clientWidth && element.clientWidth !== made.width) made.setSize({ width: element.clientWidth, height: props.height ?? 220 });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, document.documentElement.dataset.theme]);
  useEffect(() => plot.current?.setData([times, ...lines.map((line) => line.values)]), [times, lines]);
  return <div class="chart" ref={box} role="img" aria-label={label} />;
}
