// Partition lanes on one axis of event time.

import { make, say } from "./tables.js";
import { count, many, setting, span, time } from "./words.js";

const STATES = { active: "● active", idle: "◌ idle", no_watermark: "✕ no watermark yet", paused: "‖ paused" };
const HEAD = ["Partition", "State", "", "Behind now", "Not read"];

/** The stretch of event time that is shown, and a place on it in per cent. */
function axis({ lanes, watermark, now }) {
  const times = lanes.shown.flatMap((lane) => [lane.watermark, lane.max_event_time]);
  const rest = lanes.rest ?? {};
  times.push(watermark, rest.least_watermark, rest.max_event_time);
  const known = times.filter((at) => at !== null && at !== undefined);
  if (known.length === 0) return null;
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const spread = Math.max(most - least, 10_000);
  // Of a topic that is read from long ago the present is too far away to be on the same axis.
  const withNow = now - most < 4 * spread;
  const to = withNow ? Math.max(now, most) : most;
  const room = Math.max(to - least, 10_000) * 0.04;
  const [from, end] = [Math.min(least, to - 10_000) - room, to + room];
  return { from, end, withNow, place: (at) => (100 * (at - from)) / (end - from) };
}

/** Marks for the axis: round times, of which some five fit. */
function marks({ from, end }) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400];
  const span = end - from;
  const step = 1000 * (steps.find((s) => span / (s * 1000) <= 5) ?? Math.ceil(span / 5000 / 86_400) * 86_400);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= end && found.length < 12; at += step) found.push(at);
  return found;
}

function row(className) {
  const element = make("div", className);
  element.setAttribute("role", "row");
  for (const name of ["name", "state", "track", "behind", "unread"]) {
    const cell = make("div", name);
    cell.setAttribute("role", className === "lane head" ? "columnheader" : "cell");
    element.append(cell);
  }
  return element;
}

/** Puts an element of a track at a place, or hides it. */
function put(track, className, left, width = null) {
  let element = track.querySelector(`.${className.split(" ")[0]}`);
  if (!element) {
    element = make("i", className);
    track.append(element);
  }
  if (element.className !== className) element.className = className;
  element.hidden = left === null;
  if (left === null) return;
  element.style.left = `${left.toFixed(3)}%`;
  if (width !== null) element.style.width = `${Math.max(0, width).toFixed(3)}%`;
}

function said(lane) {
  if (lane.idle_in_ms !== null) return `silent, idle in ${Math.ceil(lane.idle_in_ms / 1000)} s`;
  if (lane.state === "paused") return `${span(lane.ahead_ms)} ahead of the watermark`;
  if (lane.state === "idle") return lane.silent_ms === null ? "" : `silent for ${span(lane.silent_ms)}`;
  return lane.bound_ms === null ? "" : `bound ${setting(lane.bound_ms)}`;
}

function draw(track, scale, from, to, state, watermark, now) {
  const place = (at) => (at === null || at === undefined ? null : scale.place(at));
  const [left, right] = [place(from ?? to), place(to ?? from)];
  const width = left === null ? null : right - left;
  put(track, `reach ${state}`, left, width);
  put(track, "own", place(from));
  put(track, "newest", place(to));
  put(track, "line", place(watermark));
  put(track, "now", scale.withNow ? place(now) : null);
}

function showHead(head, scale, now) {
  const cells = head.children;
  HEAD.forEach((text, x) => x !== 2 && say(cells[x], text));
  const track = cells[2];
  track.setAttribute("aria-label", "Event time");
  const at = marks(scale);
  while (track.children.length > at.length) track.lastChild.remove();
  at.forEach((mark, x) => {
    const element = track.children[x] ?? track.appendChild(make("span", "mark"));
    const place = scale.place(mark);
    say(element, time(mark, now));
    element.style.left = `${place.toFixed(3)}%`;
    element.classList.toggle("tight", place < 8 || place > 92);
  });
}

/** Gives a container as many rows as are needed, each with its class. */
function rows(container, classes) {
  while (container.children.length > classes.length) container.lastChild.remove();
  return classes.map((className, y) => {
    const held = container.children[y] ?? container.appendChild(row(className));
    if (held.className !== className) held.className = className;
    return held;
  });
}

export function showLanes(state) {
  const { lanes, watermark, now } = state;
  const parts = [`${count(lanes.active)} active`, `${count(lanes.idle)} idle`];
  if (lanes.no_watermark > 0) parts.push(`${count(lanes.no_watermark)} without a watermark`);
  if (lanes.paused > 0) parts.push(`${count(lanes.paused)} paused`);
  const shown = lanes.rest ? `; the ${count(lanes.shown.length)} that matter most are shown` : "";
  say(document.getElementById("lanes-summary"), `${many(lanes.partitions, "partition")}: ${parts.join(", ")}${shown}`);
  const scale = axis(state) ?? { from: now - 10_000, end: now, withNow: true, place: () => 100 };
  const several = new Set(lanes.shown.map((lane) => lane.subtask)).size > 1;
  const classes = ["lane head", ...lanes.shown.map((lane) => `lane ${lane.state}${lane.holds ? " holds" : ""}`)];
  if (lanes.rest) classes.push("lane rest");
  const [head, ...body] = rows(document.getElementById("lanes"), classes);
  showHead(head, scale, now);
  lanes.shown.forEach((lane, y) => {
    const [name, status, track, behind, unread] = body[y].children;
    body[y].dataset.name = lane.name;
    say(name, `${lane.holds ? "◆ " : ""}${lane.name}${several ? ` (subtask ${lane.subtask})` : ""}`);
    const more = said(lane);
    const holds = lane.state === "active" ? "● holds the watermark" : `${STATES[lane.state]}, holds the watermark`;
    say(status, `${lane.holds ? holds : STATES[lane.state]}${more ? ` · ${more}` : ""}`);
    draw(track, scale, lane.watermark, lane.max_event_time, lane.state, watermark, now);
    say(behind, lane.watermark === null ? "–" : lane.watermark > now ? `${span(lane.watermark - now)} ahead` : span(now - lane.watermark));
    say(unread, lane.lag === null ? "–" : count(lane.lag));
  });
  if (lanes.rest) showRest(body.at(-1), scale, state);
}

function showRest(element, scale, { lanes, watermark, now }) {
  const rest = lanes.rest;
  const [name, status, track, behind, unread] = element.children;
  element.dataset.name = "";
  say(name, `${count(rest.partitions)} more`);
  const active = rest.partitions - rest.idle - rest.no_watermark - rest.paused;
  const paused = rest.paused > 0 ? `, ${count(rest.paused)} paused` : "";
  say(status, `${count(active)} active, ${count(rest.idle)} idle, ${count(rest.no_watermark)} without a watermark${paused}`);
  draw(track, scale, rest.least_watermark, rest.max_event_time, "active", watermark, now);
  const [most, least] = [rest.least_watermark, rest.greatest_watermark];
  say(behind, most === null ? "–" : `${span(Math.max(0, now - least))} to ${span(Math.max(0, now - most))}`);
  say(unread, count(rest.lag));
}
