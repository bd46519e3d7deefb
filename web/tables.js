// Tables of texts. Whatever comes from topics and clients is set as text, never as markup.

import { count, many, setting, span, time, window as bounds } from "./words.js";

/** Makes an element with this text. */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

/** Sets a text, if it is another one: what has not changed stays selected, and is not read out again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Fills a table's body; a cell is a text, or a text and its class. */
export function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, y) => {
    const row = body.rows[y] ?? body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach((cell, x) => {
      const [text, className] = Array.isArray(cell) ? cell : [cell, ""];
      const held = row.cells[x] ?? row.insertCell();
      say(held, text);
      if (held.className !== className) held.className = className;
    });
  });
}

const id = (name) => document.getElementById(name);

export function showWindows({ windows, watermark, now }) {
  const { open, fired, kept, held, panes, size_ms, allowed_lateness_ms } = windows;
  const late = allowed_lateness_ms > 0 ? `, kept ${setting(allowed_lateness_ms)} for late records` : "";
  say(id("windows-summary"), `of ${setting(size_ms)}${late}; ${many(panes, "result")} held`);
  const rows = open.map((window) => {
    const short = window.short_of_ms;
    const when = watermark === null ? "no watermark yet" : short === 0 ? "at the next emission" : `by ${span(short)}`;
    return [[bounds(window.start, window.end, now), "window"], when];
  });
  const more = held - open.length - kept;
  if (more > 0) rows.push([`and ${count(more)} more`, ""]);
  if (kept > 0) rows.push([`${many(kept, "window")} fired, still open to late records`, ""]);
  fill(id("open"), rows.length > 0 ? rows : [["None: no window holds a record", ""]]);
  const last = fired.map((window) => [
    [bounds(window.start, window.end, now), "window"],
    [count(window.on_time + window.late), "number"],
    [count(window.late), "number"],
    [span(Math.max(0, window.at - window.end)), "number"],
  ]);
  fill(id("fired"), last.length > 0 ? last : [["None yet", "", "", ""]]);
}

const CAUSES = {
  out_of_order: "further behind than the bound",
  after_idle: "after their partition was idle",
  joined: "of a partition that had just come",
};

export function showCounts({ counts }) {
  const named = (of, words) =>
    Object.entries(of)
      .sort((a, b) => b[1] - a[1])
      .map(([name, n]) => `${count(n)} ${words[name] ?? name.replaceAll("_", " ")}`)
      .join(", ");
  const number = (n) => [count(n), "number"];
  fill(id("counts"), [
    ["Records read", number(counts.records), ""],
    ["Results, on time", number(counts.on_time_panes), ""],
    ["Results, again for late records", number(counts.late_panes), `${count(counts.refired)} late records were in time for them`],
    ["Late topic", number(counts.late), named(counts.late_causes, CAUSES)],
    ["Dead-letter topic", number(counts.dead_letters), named(counts.dead_letter_reasons, {})],
    ["Tombstones", number(counts.tombstones), ""],
  ]);
}

const KINDS = {
  start: "start",
  assigned: "+ assigned",
  given_up: "− given up",
  idle: "◌ idle",
  active: "● active",
  phase: "phase",
  regression: "▲ held",
  abort: "✕ aborted",
};

export function showEvents(events, now) {
  const rows = [...events].reverse().map((event) => [
    [time(event.at, now), "when"],
    [KINDS[event.kind] ?? event.kind, "kind"],
    event.times > 1 ? `${event.text} (${count(event.times)} times)` : event.text,
  ]);
  fill(id("events"), rows);
}
