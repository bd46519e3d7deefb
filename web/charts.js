// Charts of the last minutes, or of the last hour per minute. Two things in one chart differ in shape, not only in colour.

import { say } from "./tables.js";
import { count, span } from "./words.js";

const id = (name) => document.getElementById(name);
const POINT = 10;
const POINTS_SHOWN = 60;
const HEIGHT = 150;
let before = [];
let points = [];
let stretch = null;
let charts = {};

/** The points that are over. */
export function takePoints(content) {
  before = content;
}

/** The one that is going on; after the others. */
export function showPoint(content) {
  points = content ? [...before, content] : before;
  show();
}

/** What is shown until somebody chooses: an hour, once there is more than ten minutes of it. */
function shown() {
  return stretch ?? (points.length > POINTS_SHOWN ? "hour" : "minutes");
}

/** Points of ten seconds, or of a minute each. */
function grouped() {
  if (shown() === "minutes") return points.slice(-POINTS_SHOWN).map((point) => ({ ...point, seconds: POINT }));
  const minutes = new Map();
  for (const point of points) {
    const at = Math.floor(point.at / 60_000) * 60_000;
    const held = minutes.get(at);
    if (!held) {
      minutes.set(at, { ...point, at, seconds: POINT });
      continue;
    }
    held.seconds += POINT;
    held.lag_ms = Math.max(held.lag_ms ?? -Infinity, point.lag_ms ?? -Infinity);
    if (held.lag_ms === -Infinity) held.lag_ms = null;
    for (const name of ["records", "on_time_panes", "late_panes"]) held[name] += point[name];
  }
  return [...minutes.values()];
}

function show() {
  if (points.length === 0 || typeof uPlot === "undefined") return;
  const held = grouped();
  const times = held.map((point) => point.at / 1000);
  const results = held.map((point) => point.on_time_panes + point.late_panes);
  const late = held.map((point) => point.late_panes);
  const lag = held.map((point) => (point.lag_ms === null ? null : point.lag_ms / 1000));
  // The last point is still going on: its rate would be too low.
  const rates = held.map((point, x) => (x === held.length - 1 ? null : point.records / point.seconds));
  draw("results", [times, results, late]);
  draw("lag", [times, lag]);
  draw("records", [times, rates]);
  const per = shown() === "hour" ? "minute" : "10 s";
  say(id("chart-results-title"), `Results per ${per}; hatched: again, for late records`);
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const known = lag.filter((held) => held !== null);
  const rate = rates.filter((held) => held !== null).at(-1);
  label("results", `Results per ${per}: ${count(sum(results))} in all, ${count(sum(late))} of them again for late records`);
  label("lag", known.length === 0 ? "No watermark yet" : `Watermark behind now: ${span(1000 * known.at(-1))} at last, ${span(1000 * Math.max(...known))} at most`);
  label("records", rate === undefined ? "No full 10 s yet" : `Records read per second: ${count(rate)} at last`);
  for (const input of document.getElementsByName("stretch")) input.checked = input.value === shown();
}

function label(name, text) {
  const element = id(`chart-${name}`);
  if (element.getAttribute("aria-label") !== text) element.setAttribute("aria-label", text);
}

function draw(name, data) {
  const [first, last] = [data[0][0], data[0].at(-1)];
  const range = shown() === "hour" ? 3600 : 600;
  const bar = shown() === "hour" ? 60 : POINT;
  const scale = { min: Math.max(last - range, first - bar) - bar / 2, max: last + bar };
  charts[name] ??= build(name);
  charts[name].setData(data, false);
  charts[name].batch(() => {
    charts[name].setScale("x", scale);
    const most = Math.max(0, ...data.slice(1).flat().map((held) => held ?? 0));
    charts[name].setScale("y", { min: 0, max: most === 0 ? 1 : most * 1.08 });
  });
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A hatch, so that the second kind is told without its colour. */
function hatch(chart) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour("--card");
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = colour("--second");
  pen.lineWidth = 2.5;
  pen.beginPath();
  for (const x of [-8, 0, 8]) {
    pen.moveTo(x, 8);
    pen.lineTo(x + 8, 0);
  }
  pen.stroke();
  return chart.ctx.createPattern(tile, "repeat");
}

function build(name) {
  const holder = id(`chart-${name}`);
  const bars = uPlot.paths.bars({ size: [0.8, 40], align: 1 });
  const first = { stroke: colour("--first"), width: 2, points: { show: false } };
  const series = {
    results: [
      { stroke: colour("--first"), fill: colour("--first"), width: 0, paths: bars, points: { show: false } },
      { stroke: colour("--second"), fill: hatch, width: 1, paths: bars, points: { show: false } },
    ],
    lag: [{ ...first, paths: uPlot.paths.stepped({ align: 1 }) }],
    records: [{ ...first, fill: colour("--tint") }],
  }[name];
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const values = name === "lag" ? (_, ticks) => ticks.map((s) => (s < 120 ? `${s} s` : span(1000 * s))) : (_, ticks) => ticks.map((n) => n.toLocaleString("en-US"));
  const times = (_, ticks) => ticks.map((s) => new Date(1000 * s).toISOString().slice(11, shown() === "hour" ? 16 : 19));
  return new uPlot(
    {
      width: Math.max(200, holder.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      padding: [10, 12, 0, 0],
      scales: { x: { time: true, auto: false }, y: { auto: false } },
      axes: [{ ...axis, values: times, space: 80, size: 28 }, { ...axis, values, size: 58, space: 34 }],
      series: [{}, ...series],
    },
    [[0], ...series.map(() => [0])],
    holder,
  );
}

function rebuild() {
  for (const chart of Object.values(charts)) chart.destroy();
  charts = {};
  show();
}

export function listen() {
  for (const input of document.getElementsByName("stretch")) {
    input.addEventListener("change", () => {
      stretch = input.value;
      show();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);
  const observer = new ResizeObserver(() => {
    for (const [name, chart] of Object.entries(charts)) {
      const width = Math.max(200, id(`chart-${name}`).clientWidth);
      if (width !== chart.width) chart.setSize({ width, height: HEIGHT });
    }
  });
  for (const name of ["results", "lag", "records"]) observer.observe(id(`chart-${name}`));
}
