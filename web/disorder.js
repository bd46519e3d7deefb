// How far records come behind, and what another bound would have lost.

import { fill, make, say } from "./tables.js";
import { count, setting, share } from "./words.js";

const id = (name) => document.getElementById(name);
let disorder = { topics: [] };
let chosen = "";
let bound = null;

export function showDisorder(content) {
  disorder = content;
  show();
}

function show() {
  const topic = disorder.topics.find((topic) => topic.topic === chosen) ?? disorder.topics[0];
  showChoice();
  if (!topic || topic.records === 0) {
    say(id("disorder-summary"), "no record in the last hour");
    fill(id("classes"), []);
    id("bounds").hidden = true;
    return;
  }
  say(id("disorder-summary"), `${count(topic.records)} records of the last hour`);
  showClasses(topic);
  showBounds(topic);
}

function showChoice() {
  const [label, select] = [id("topic-choice"), id("topic")];
  label.hidden = disorder.topics.length < 2;
  const names = disorder.topics.map((topic) => topic.topic);
  if ([...select.options].map((option) => option.value).join("\n") === names.join("\n")) return;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
}

/** From the first class that has anything to the last. */
function showClasses(topic) {
  const from = Math.max(0, topic.classes.findIndex((held) => held.share > 0));
  const to = topic.classes.findLastIndex((held) => held.share > 0);
  const classes = topic.classes.slice(from, to + 1);
  const most = Math.max(...classes.map((held) => held.share));
  const body = id("classes");
  const last = topic.classes.at(-2)?.up_to_ms ?? 0;
  fill(body, classes.map((held) => [[label(held, last), "number"], ["", "bar"], [share(held.share), "number"]]));
  let below = -1;
  classes.forEach((held, y) => {
    const cell = body.rows[y].cells[1];
    const bar = cell.firstElementChild ?? cell.appendChild(make("span", "fill"));
    bar.style.width = `${((100 * held.share) / most).toFixed(2)}%`;
    const holds = topic.bound_ms !== null && topic.bound_ms > below && topic.bound_ms <= (held.up_to_ms ?? Infinity);
    body.rows[y].classList.toggle("at-bound", holds);
    const mark = cell.children[1] ?? cell.appendChild(make("span", "mark"));
    say(mark, holds ? `◀ bound in force ${setting(topic.bound_ms)}` : "");
    below = held.up_to_ms ?? below;
  });
}

function label(held, last) {
  if (held.up_to_ms === 0) return "in order";
  return held.up_to_ms === null ? `over ${setting(last)}` : setting(held.up_to_ms);
}

function showBounds(topic) {
  id("bounds").hidden = topic.bounds.length === 0;
  const slider = id("bound");
  const places = topic.bounds.map((step) => step.bound_ms);
  const wanted = bound ?? topic.recommended_ms ?? topic.bound_ms ?? 0;
  const place = places.findLastIndex((ms) => ms <= wanted);
  slider.max = String(places.length - 1);
  slider.value = String(Math.max(0, place));
  const step = topic.bounds[Number(slider.value)];
  const names = [];
  if (step.bound_ms === topic.recommended_ms) names.push("recommended: the 99th percentile");
  if (step.bound_ms === topic.bound_ms) names.push("in force");
  say(id("bound-value"), `${setting(step.bound_ms)}${names.length > 0 ? ` (${names.join(", ")})` : ""}`);
  slider.setAttribute("aria-valuetext", `${setting(step.bound_ms)}, ${share(step.late_share)} late`);
  const now = topic.bounds.find((held) => held.bound_ms === topic.bound_ms);
  const beside = now && now !== step ? `; with the one in force, ${setting(now.bound_ms)}, ${share(now.late_share)}` : "";
  const caught = `It would have caught ${share(1 - step.late_share)}`;
  const lost = `${share(step.late_share)} late, about ${count(step.late_share * topic.records)} of ${count(topic.records)}`;
  say(id("bound-said"), `${caught}: ${lost}${beside}. Results come by the bound later.`);
}

export function listen() {
  id("bound").addEventListener("input", () => {
    const topic = disorder.topics.find((topic) => topic.topic === chosen) ?? disorder.topics[0];
    bound = topic?.bounds[Number(id("bound").value)]?.bound_ms ?? null;
    show();
  });
  id("topic").addEventListener("change", () => {
    [chosen, bound] = [id("topic").value, null];
    show();
  });
}
